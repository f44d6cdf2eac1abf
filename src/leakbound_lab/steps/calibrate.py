"""Noise of a shape that reveals at most a capacity."""

import logging
import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import typer

from leakbound import storage
from leakbound.commands.files import read_spectrum
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import covariance_of, read_moments, refuse_excess, write_provenance

logger = logging.getLogger("leakbound")
REFUSED = 1.25  # as leakbound.channels.observed says, which loads too much for a list of jobs
_TOLERANCE = 0.02  # share of κ by which the members' own distribution may differ without a warning


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each dataset, family of channels and capacity."""
    for name, channel in table.channels().items():
        shape = channel.settings.shape
        yield new_job(
            table.config,
            "calibrate",
            name,
            {},
            arguments={
                "shape": shape,
                "capacity": channel.capacity,
                "accept_capacity": table.config.accept_capacity,
            },
            inputs={
                "spectrum": table.file("spectrum", channel.spectrum),
                "members": table.moments(channel.dataset, "members"),
            },
            uses={"shapes": [shape]},
            purpose="data and channels",
            work=partial(_work, table, channel.dataset),
        )


def _work(table: RunTable, dataset: str) -> Iterable[Work]:
    """Yield the capacity under the members' distribution, counted as a product of their covariance with itself."""
    yield Work("product", table.size(dataset).pixels ** 3)


def calibrate(
    shape: str,
    capacity: float,
    plain: dict[str, Any],
    spectrum: Path,
    members: Path,
    out: Path,
    provenance: Path,
    accept_capacity: float = REFUSED,
) -> None:
    """Find the noise that reveals at most the given capacity, and check the stored channel.

    The channel states its capacity under the distribution that it is made from. The capacity under the
    members' own distribution is a statistic of the members. It is only in the provenance, which stays with
    the results.

    Args:
        shape: Name of the shape of noise.
        capacity: Nats that a use may reveal, > 0.
        plain: These settings as plain values, for the provenance.
        spectrum: Spectrum of the shape to read.
        members: Mean and covariance of the members to read.
        out: Channel to write.
        provenance: Record to write.
        accept_capacity: Multiple of ``capacity``, >= 1, above which the members' own is refused.
    """
    from leakbound.channels.channel import channel_capacity
    from leakbound.registry import SHAPES

    began = time.time()
    source = read_spectrum(spectrum)
    if source.shape != shape:
        raise typer.BadParameter(f"{spectrum}: is the spectrum of the shape {source.shape}, not of {shape}")
    channel = SHAPES.get(shape).calibrate(source, capacity)
    reached = channel_capacity(channel, source)
    if reached > capacity:
        raise RuntimeError(f"{shape}: the noise reveals {reached} nats, more than {capacity}")
    metadata = {"reached": repr(reached), "covariance_of": covariance_of(spectrum)}
    of_members = channel_capacity(channel, read_moments(members))
    warning = _warning(of_members, capacity)
    if warning is not None:  # without the number, a statistic of the members, because more people read logs
        logger.warning(
            "%s: the members' own covariance changes its capacity by more than 2 %%: see %s", out, provenance
        )
    refuse_excess(of_members > accept_capacity * capacity, members, accept_capacity)
    if accept_capacity != REFUSED:
        metadata["accept_capacity"] = repr(accept_capacity)
    storage.write_arrays(out, channel.arrays(), {**channel.metadata(), **metadata})
    write_provenance(
        provenance,
        plain,
        {"spectrum": spectrum, "members": members, "channel": out},
        None,
        began,
        private=bool(storage.read_metadata(members, sealed=False).get("secret")),
        capacity=capacity,
        reached=reached,
        capacity_of_members=of_members if math.isfinite(of_members) else None,
        warning=warning,
    )


def _warning(of_members: float, capacity: float) -> str | None:
    """Warn if a channel reveals another amount about its members than it states. None if both are close."""
    difference = of_members / capacity - 1.0
    if abs(difference) <= _TOLERANCE:
        return None
    stated = f"under the members' own covariance it reveals {of_members:.4g} nats, not {capacity:g}"
    if difference > 0:
        return f"{stated}: the bound holds for the attacker's records (aux); prepare more of them"
    return (
        f"{stated}: the members get more noise than they need; prepare more of the attacker's records (aux)"
    )


STEP = Step(calibrate, jobs)
