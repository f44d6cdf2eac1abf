"""Noise of a shape that lets through at most a capacity."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from pydantic import Field

from leakbound import storage
from leakbound.cli.files import JobSettings, read_spectrum
from leakbound.config.settings import Level, Name
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.table import RunTable


class CalibrateSettings(JobSettings):
    """A shape of noise at one capacity, nats."""

    shape: Name
    capacity: Annotated[Level, Field(gt=0)]


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each dataset, family of channels and capacity."""
    for name, (spectrum, defense, capacity) in table.channels().items():
        yield new_job(
            table.config,
            "calibrate",
            name,
            {"shape": defense.shape, "capacity": capacity},
            inputs={"spectrum": table.file("spectrum", spectrum)},
            uses={"shapes": [defense.shape]},
            purpose="data and channels",
        )


def calibrate(asked: CalibrateSettings, spectrum: Path, out: Path) -> None:
    """Find the noise that lets through at most the given capacity, and check the stored channel."""
    from leakbound.channels.channel import channel_capacity
    from leakbound.registry import SHAPES

    source = read_spectrum(spectrum)
    if source.shape != asked.shape:
        raise typer.BadParameter(f"{spectrum}: is a spectrum for the shape {source.shape}, not for {asked.shape}")
    channel = SHAPES.get(asked.shape).calibrate(source, asked.capacity)
    reached = channel_capacity(channel, source)
    if reached > asked.capacity:
        raise RuntimeError(f"{asked.shape}: the noise lets {reached} nats through, more than {asked.capacity}")
    storage.write_arrays(out, channel.arrays(), {**channel.metadata(), "reached": repr(reached)})


STEP = Step(CalibrateSettings, calibrate, jobs, resources="calibrate", group="channels")
