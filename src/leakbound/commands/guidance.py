"""Warnings if next to nothing is left of records, with nats and picture sizes that would leave more."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from leakbound.channels.covariance import Moments, population_moments
from leakbound.commands import own_records
from leakbound.commands.terminal import progress_bar
from leakbound.engine.calibrations import Calibration, nats_for_half, recovered_share, visible_share
from leakbound.engine.targets import Reconstruction, Target
from leakbound.registry import SHAPES

if TYPE_CHECKING:
    from leakbound.records.collection import Collection

LITTLE = 0.1
"""Share of the variance below which next to nothing is left."""
_SIDES = (16, 32, 128)  # covariances of sides in between take half a minute
_MOST = 1_000  # pictures from which the noise on smaller ones is estimated


def write_guidance(calibration: Calibration, target: Target, public: Collection) -> None:
    """Write :func:`_guidance` as warnings.

    Args:
        calibration: Channel, and the moments of the records that it was calibrated to.
        target: Target that it meets, in the user's units.
        public: Records that it was calibrated to.
    """
    for sentence in _guidance(calibration, target, target.uses or 1, public):
        own_records.warn(sentence)


def _guidance(calibration: Calibration, target: Target, uses: int, public: Collection) -> Iterator[str]:
    """Yield what is lost if next to nothing is left, and what would leave more. Nothing if enough is left."""
    share = recovered_share(calibration, uses)
    visible = visible_share(calibration, uses)
    if min(share, visible) >= LITTLE:
        return
    copies = "a copy" if uses == 1 else f"all {uses} copies averaged"
    if share < LITTLE:
        yield (
            f"next to nothing is left: the best linear estimate from {copies} recovers {own_records.percent(share)} of "
            "a record's variance"
        )
    else:
        yield (
            f"single values of {copies} show next to nothing: the standard deviation of their noise is "
            f"{math.sqrt(1.0 / visible - 1.0):.2g} times that of the records. Only an estimate from all values "
            f"recovers {own_records.percent(share)} of the variance"
        )
    natural = calibration
    if calibration.spectrum.weights is not None:
        natural = _solve("natural", calibration.moments, target, uses, public)
    kind = natural.channel.shape
    reached = [(recovered_share, "half of the variance is recovered")] if share < LITTLE else []
    reached += (
        [(visible_share, "the noise is as large as the spread of the records")] if visible < LITTLE else []
    )
    levels = (f"from about {_nats_for_half(of, natural, uses)} nats on {text}" for of, text in reached)
    yield f"more nats about the values leave more: with the shape {kind}, {', and '.join(levels)}"
    if public.pictures and not isinstance(target, Reconstruction):  # whose unit is a value of these pictures
        smaller = ", ".join(_smaller_pictures(kind, target, uses, public))
        yield from [f"smaller pictures need less noise for the same target: {smaller}"] if smaller else ()


def _nats_for_half(share: Callable[[Calibration, int], float], calibration: Calibration, uses: int) -> str:
    """Write the nats of all copies, to two digits, at which a share is one half."""
    nats = float(f"{nats_for_half(share, calibration, uses):.2g}")
    return f"{nats:g}" if nats < 1000 else f"{nats:,.0f}"


def _smaller_pictures(shape: str, target: Target, uses: int, public: Collection) -> Iterator[str]:
    """Yield the noise that the target needs on smaller pictures, and the share that is recovered from them."""
    sides = [side for side in _SIDES if side < min(public.values.shape[2:])]
    with progress_bar("the same target on smaller pictures", len(sides)) as each:
        for side in sides:
            pictures = _resize(public, side)
            solved = _solve(shape, population_moments(pictures.values), target, uses, pictures)
            std = own_records.deviations(solved.channel)["root_mean_square"]
            yield f"--resize {side} std {std:.2g} (recovers {own_records.percent(recovered_share(solved, uses))})"
            each(1)


def _resize(public: Collection, side: int) -> Collection:
    """Resize at most 1,000 pictures as --resize does, with values from 0 (black) to 1 (white)."""
    from PIL import Image, ImageOps

    values = public.values[:_MOST]
    planes = values.reshape(-1, *values.shape[2:]).astype(np.float32) * np.float32(public.unit)
    small = [np.asarray(ImageOps.fit(Image.fromarray(plane), (side, side))) for plane in planes]
    return replace(public, values=np.stack(small).reshape(*values.shape[:2], side, side), unit=1.0)


def _solve(shape: str, moments: Moments, target: Target, uses: int, public: Collection) -> Calibration:
    """Find the channel of a shape without weights that meets the target for records of these moments."""
    kind = SHAPES.get(shape)
    return own_records.in_units(target, public).solve(kind, kind.decompose(moments), moments, uses)
