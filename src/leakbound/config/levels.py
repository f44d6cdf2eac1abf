"""What the level of each defense may be, and the records that a step of it uses."""

from __future__ import annotations

import math

from leakbound.config.defenses import (
    DPSGD,
    ChannelDefense,
    Compression,
    Defense,
    GradientCompression,
    LargeBatch,
    ParameterNoise,
    Undefended,
)

_PIXELS = 32 * 32
_MOST_COLORS = 3


def directions(colors: int | None) -> int:
    """Principal directions of images of so many colors; of those with most colors if that is not known."""
    return _PIXELS * (colors or _MOST_COLORS)


def level_problem(defense: Defense, level: float | None, colors: int | None = None) -> str | None:
    """What is allowed as level of a defense where ``level`` is not; None where it is.

    A trainer from outside judges its level itself.

    Args:
        defense: Settings of the defense.
        level: As the defense means it.
        colors: Of the images, if known; compression drops one of their principal directions.
    """
    if isinstance(defense, Undefended):
        return None if level is None else "without a defense there is none"
    allowed, meaning = _allowed(defense, math.nan if level is None else level, directions(colors))
    return None if allowed else meaning


def _allowed(defense: Defense, level: float, count: int) -> tuple[bool, str]:
    """Whether a defense can have the level, and what it can have, on images of ``count`` principal directions."""
    finite, whole = math.isfinite(level), level % 1 == 0
    if isinstance(defense, ChannelDefense):
        return finite and level > 0, 'a capacity must be > 0 nats. For no noise use the defense "none"'
    if isinstance(defense, DPSGD):
        return finite and level >= 0, f"{defense.mechanism} needs its noise multiplier, >= 0 (0 clips without noise)"
    if isinstance(defense, ParameterNoise):
        return finite and level >= 0, "parameter_noise needs the standard deviation of its noise, >= 0"
    if isinstance(defense, GradientCompression):
        return 0 < level <= 1, "gradient_compression needs the fraction of coordinates that is sent, in (0, 1]"
    if isinstance(defense, LargeBatch):
        return whole and level >= 1, "large_batch needs a factor on the batch size, a whole number >= 1"
    if isinstance(defense, Compression):
        return (
            whole and 0 <= level < count,
            "compression needs the index of a principal direction, a whole number from 0 (the largest eigenvalue) to "
            f"below the number of pixels times colors, {count}",
        )
    return True, ""


def records_in_step(defense: Defense, level: float | None, batch_size: int) -> int:
    """Records that one step of a defense averages over: the batch size, times the level of a large batch."""
    if isinstance(defense, LargeBatch) and level is not None and level_problem(defense, level) is None:
        return batch_size * int(level)
    return batch_size
