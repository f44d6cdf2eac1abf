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

_LARGEST_IMAGE = 3 * 32 * 32


def level_problem(defense: Defense, level: float | None) -> str | None:
    """What is allowed as level of a defense where ``level`` is not; None where it is.

    A trainer from outside judges its level itself.
    """
    if isinstance(defense, Undefended):
        return None if level is None else "without a defense there is none"
    allowed, meaning = _allowed(defense, math.nan if level is None else level)
    return None if allowed else meaning


def _allowed(defense: Defense, level: float) -> tuple[bool, str]:
    """Whether a defense can have the level, and what it can have."""
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
            whole and 0 <= level < _LARGEST_IMAGE,
            "compression needs the index of a principal direction, a whole number from 0 (the largest eigenvalue) to "
            "below the number of pixels times colors",
        )
    return True, ""


def records_in_step(defense: Defense, level: float | None, batch_size: int) -> int:
    """Records that one step of a defense averages over: the batch size, times the level of a large batch."""
    if isinstance(defense, LargeBatch) and level is not None and level_problem(defense, level) is None:
        return batch_size * int(level)
    return batch_size
