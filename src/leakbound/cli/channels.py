"""Commands: spectra and calibrated channels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, check_outputs, read_moments, read_settings, read_spectrum
from leakbound.cli.jobs import CalibrateJob, SpectrumJob


def spectrum(
    settings: SettingsOption,
    moments: Annotated[Path, typer.Option(help="Mean and covariance, written by `covariance`.")],
    out: Annotated[Path, typer.Option(help="Spectrum, safetensors.")],
) -> None:
    """Decompose a covariance as far as a channel shape needs it; done once for all capacities."""
    from leakbound.channels.weights import box_weights
    from leakbound.registry import SHAPES

    check_outputs(out)
    job = read_settings(settings, SpectrumJob)
    shape = SHAPES.get(job.shape)
    found = read_moments(moments)
    weights = None
    if shape.takes_weights:
        colors, rest = divmod(found.dimension, 32 * 32)
        if rest:
            raise typer.BadParameter(f"{moments}: {found.dimension} pixels are no 32×32 images")
        box = job.weights
        weights = box_weights(colors, 32, 32, rows=box.rows, columns=box.columns, weight=box.weight)
    result = shape.decompose(found, weights=weights)
    storage.write_arrays(out, result.arrays(), result.metadata())


def calibrate(
    settings: SettingsOption,
    spectrum: Annotated[Path, typer.Option(help="Spectrum, written by `spectrum`.")],
    out: Annotated[Path, typer.Option(help="Channel, safetensors.")],
) -> None:
    """Find the noise that lets through at most the given capacity, and check the stored channel."""
    from leakbound.channels.channel import channel_capacity
    from leakbound.registry import SHAPES

    check_outputs(out)
    job = read_settings(settings, CalibrateJob)
    source = read_spectrum(spectrum)
    if source.shape != job.shape:
        raise typer.BadParameter(f"{spectrum}: is a spectrum for the shape {source.shape}, not for {job.shape}")
    channel = SHAPES.get(job.shape).calibrate(source, job.capacity)
    reached = channel_capacity(channel, source)
    if reached > job.capacity:
        raise RuntimeError(f"{job.shape}: the noise lets {reached} nats through, more than {job.capacity}")
    storage.write_arrays(out, channel.arrays(), {**channel.metadata(), "reached": repr(reached)})
