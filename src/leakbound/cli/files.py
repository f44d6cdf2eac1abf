"""What several commands read: settings, images, channels."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import registry, storage

if TYPE_CHECKING:
    from leakbound.channels import Channel, Moments, Spectrum
    from leakbound.datasets import ImageDataset

SettingsOption = Annotated[str, typer.Option(help="What the job depends on, as JSON.")]
DatasetOption = Annotated[Path, typer.Option(help="Prepared images, written by `prepare`.")]
ChannelOption = Annotated[Path | None, typer.Option(help="Channel, written by `calibrate`.")]
SpectrumOption = Annotated[Path | None, typer.Option(help="Spectrum that the channel was calibrated from.")]

_KINDS = {
    "datasets": registry.DATASETS,
    "models": registry.MODELS,
    "shapes": registry.SHAPES,
    "trainers": registry.TRAINERS,
    "attacks": registry.ATTACKS,
    "plots": registry.PLOTS,
    "illustrations": registry.ILLUSTRATIONS,
    "claim_tests": registry.CLAIM_TESTS,
}


def read_settings(text: str) -> dict[str, Any]:
    """Settings from the command line; what they name from outside the package is registered.

    Raises:
        typer.BadParameter: If ``text`` is not a JSON object.
    """
    try:
        settings = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"--settings is not JSON: {error}") from error
    if not isinstance(settings, dict):
        raise typer.BadParameter(f"--settings must be a JSON object, not {text!r}")
    register_plugins(settings.get("plugins", {}))
    return settings


def register_plugins(plugins: Mapping[str, Mapping[str, str]]) -> None:
    """Register things from outside the package: kind to name to ``module:attribute``."""
    for kind, entries in plugins.items():
        for name, target in entries.items():
            _KINDS[kind].add(name, target)


def read_dataset(path: Path) -> ImageDataset:
    """Images as `prepare` wrote them."""
    from leakbound.datasets import ImageDataset

    with _expected(path, "prepare"):
        arrays, metadata = storage.read_arrays_and_metadata(path)
        return ImageDataset.from_arrays(metadata["name"], tuple(json.loads(metadata["classes"])), arrays)


def read_spectrum(path: Path) -> Spectrum:
    """Spectrum as `spectrum` wrote it."""
    from leakbound.channels import Spectrum

    with _expected(path, "spectrum"):
        return Spectrum.from_arrays(*storage.read_arrays_and_metadata(path))


def read_moments(path: Path) -> Moments:
    """Mean and covariance as `covariance` wrote them."""
    from leakbound.channels import Moments

    with _expected(path, "covariance"):
        return Moments.from_arrays(storage.read_arrays(path))


def read_channel(channel: Path | None, spectrum: Path | None) -> tuple[Channel | None, Spectrum | None]:
    """Channel as `calibrate` wrote it, with the axes of its spectrum; nothing for a defense without one.

    Raises:
        typer.BadParameter: If only one of the two files is given.
    """
    from leakbound.channels import Channel

    if (channel is None) != (spectrum is None):
        raise typer.BadParameter("--channel and --spectrum come together")
    if channel is None or spectrum is None:
        return None, None
    found = read_spectrum(spectrum)
    with _expected(channel, "calibrate"):
        stored = Channel.from_arrays(*storage.read_arrays_and_metadata(channel), found.basis)
    return stored, found


@contextmanager
def _expected(path: Path, command: str) -> Iterator[None]:
    """Turn what is missing in a readable file into an error that names the file and the command that writes it."""
    try:
        yield
    except KeyError as error:
        raise storage.DamagedFileError(path, f"it lacks {error}, so `leakbound {command}` did not write it") from error


def device_name(asked: str) -> str:
    """Torch device for ``auto``, ``cpu`` or ``cuda``, with convolutions in full float32 as on a CPU.

    Raises:
        typer.BadParameter: If ``cuda`` is asked for and there is none.
    """
    import torch

    torch.backends.cudnn.allow_tf32 = False
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if asked == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter('device = "cuda": no CUDA device is visible; use "auto" or "cpu"')
    return asked


def device_label(device: str) -> str:
    """Name of the device for provenance."""
    import platform

    import torch

    if device == "cpu":
        return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
    return torch.cuda.get_device_name()
