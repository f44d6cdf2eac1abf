"""Options and files that several commands share: settings, images, channels, tables."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakbound import storage
from leakbound.jobs.processes.gpus import take_gpu
from leakbound.storage.tables import other_file

if TYPE_CHECKING:
    from leakbound.attacks.learned_estimate.estimator import Estimator
    from leakbound.channels.channel import GaussianChannel, Spectrum
    from leakbound.channels.covariance import Moments
    from leakbound.datasets import Drawing, ImageDataset


def named_files(given: Sequence[str] | None) -> dict[str, Path]:
    """Files by the name before the equals sign.

    Raises:
        typer.BadParameter: If a text has no such form.
    """
    pairs = [text.partition("=") for text in given or []]
    for name, _, path in pairs:
        if not (name and path):
            raise typer.BadParameter(f"{name}{path}: give NAME=FILE")
    return {name: Path(path) for name, _, path in pairs}


def check_outputs(*paths: Path) -> None:
    """Find out before anything is computed what could not be written after it.

    Raises:
        typer.BadParameter: If a path is a folder, lies where nothing can be made, or comes twice.
    """
    for path in paths:
        if path.is_dir():
            raise typer.BadParameter(f"{path}: is a folder; name a file")
        home = next(folder for folder in path.absolute().parents if folder.exists())
        if not home.is_dir():
            raise typer.BadParameter(f"{path}: {home} is not a folder, so nothing can be written there")
        try:
            with tempfile.TemporaryFile(dir=home):
                pass
        except OSError as error:
            raise typer.BadParameter(
                f"{path}: nothing can be written to {home} ({error.strerror})"
            ) from error
    if len({path.absolute() for path in paths}) < len(paths):
        raise typer.BadParameter(f"{', '.join(map(str, paths))}: outputs need paths of their own")


def read_dataset(path: Path) -> ImageDataset:
    """Images as `step prepare` wrote them."""
    from leakbound.datasets import ImageDataset

    with _expected(path, "prepare"):
        arrays, metadata = storage.read_arrays_and_metadata(path)
        classes, drawing = json.loads(metadata["classes"]), json.loads(metadata["drawing"])
        if not isinstance(classes, list):
            raise ValueError("its classes are no list")
        names = tuple(map(str, classes))
        secret = metadata.get("secret", "")
        return ImageDataset.from_arrays(metadata["name"], names, arrays, _drawing(drawing), secret)


def _drawing(values: Any) -> Drawing:
    """Rule of a dataset's replicas from plain values.

    Raises:
        ValueError: If they are none.
    """
    from leakbound.datasets import Drawing

    kinds = {field.name: bool if field.name == "stratified" else int for field in fields(Drawing)}
    if not isinstance(values, dict) or {name: type(value) for name, value in values.items()} != kinds:
        raise ValueError("it does not say how replicas draw their records")
    return Drawing(**values)


def read_spectrum(path: Path) -> Spectrum:
    """Spectrum as `step spectrum` wrote it."""
    from leakbound.channels.channel import Spectrum

    with _expected(path, "spectrum"):
        return Spectrum.from_arrays(*storage.read_arrays_and_metadata(path))


def read_moments(path: Path) -> Moments:
    """Mean and covariance as `step covariance` wrote them."""
    from leakbound.channels.covariance import Moments

    with _expected(path, "covariance"):
        return Moments.from_arrays(storage.read_arrays(path))


def covariance_of(path: Path) -> str:
    """Records, ``aux`` or ``members``, whose covariance a file of moments, a spectrum or a channel comes from.

    A file that does not say is taken to be of the members, which nobody should publish.
    """
    return storage.read_metadata(path).get("covariance_of", "members")


def read_channel(
    channel: Path | None, spectrum: Path | None
) -> tuple[GaussianChannel | None, Spectrum | None]:
    """Channel as `step calibrate` wrote it, with the axes of its spectrum; nothing for a defense without one.

    Raises:
        typer.BadParameter: If only one of the two files is given.
    """
    from leakbound.channels.channel import GaussianChannel

    if (channel is None) != (spectrum is None):
        raise typer.BadParameter("--channel and --spectrum come together")
    if channel is None or spectrum is None:
        return None, None
    found = read_spectrum(spectrum)
    with _expected(channel, "calibrate"):
        stored = GaussianChannel.from_arrays(*storage.read_arrays_and_metadata(channel), found.basis)
    return stored, found


def refuse_excess(exceeds: bool, where: Path, accepted: float) -> None:
    """Refuse records under whose own moments a channel reveals too much; without numbers, for logs have more readers.

    Raises:
        typer.BadParameter: If ``exceeds``.
    """
    if exceeds:
        raise typer.BadParameter(
            f"{where}: by the moments of these images the channel reveals over {accepted:g} times its capacity: they "
            "are on another scale than the images that it was calibrated to, or of another distribution; if they are "
            "right, prepare more of the attacker's records (aux), or set accept_capacity to a larger multiple"
        )


def check_passing(images: ImageDataset, channel: Path, spectrum: Path, where: Path) -> None:
    """Refuse images that the channel was not calibrated for: a sample of the pool that passes it, and its directions.

    Raises:
        typer.BadParameter: If their own moments give more than was accepted, or noise that follows the data
            of the calibration hides next to nothing of them.
    """
    import numpy as np

    from leakbound.channels.channel import signal_to_noise
    from leakbound.channels.observed import REFUSED, own_capacity, sample_size, unspanned

    found, source = read_channel(channel, spectrum)
    pool = images.pool.images
    chosen = np.random.default_rng(0).permutation(len(pool))[: sample_size(pool[0].size)]
    rows = pool[np.sort(chosen)].reshape(len(chosen), -1).astype(np.float64)
    if found is None or source is None or found.dimension != rows.shape[1]:
        return  # which whoever uses the channel refuses
    accepted = float(storage.read_metadata(channel).get("accept_capacity", REFUSED))
    refuse_excess(
        own_capacity(rows, found, signal_to_noise(found, source)).exceeds(accepted), where, accepted
    )
    if unspanned(rows, found, source):
        raise typer.BadParameter(
            f"{where}: an image varies where no calibration image does, and {found.shape} noise hides next to nothing "
            "there: take shape natural, or prepare more of the attacker's records (aux)"
        )


def read_estimator(path: Path, images: ImageDataset) -> Estimator:
    """Learned estimate as `step estimator` wrote it.

    Raises:
        typer.BadParameter: If it was trained on images of another shape.
    """
    from leakbound.attacks.learned_estimate.estimator import Estimator

    with _expected(path, "estimator"):
        found = Estimator.from_arrays(*storage.read_arrays_and_metadata(path))
    if found.image_shape != (shape := images.aux.images.shape[1:]):
        raise typer.BadParameter(
            f"{path}: was trained on images of shape {found.image_shape}, these have {shape}"
        )
    return found


@contextmanager
def _expected(path: Path, command: str) -> Iterator[None]:
    """Turn what is missing or wrong in a readable file into an error that names file and command."""
    try:
        yield
    except storage.DamagedFileError:
        raise
    except KeyError as error:
        raise other_file(path, f"it lacks {error}", command) from error
    except ValueError as error:
        raise other_file(path, str(error), command) from error


def write_provenance(
    path: Path,
    plain: dict[str, Any],
    inputs: Mapping[str, Path | None],
    device: str | None,
    began: float,
    *,
    private: bool = False,
    **facts: Any,
) -> None:
    """Write where a result comes from: settings as they came, inputs that were given, device if any, times.

    ``began`` is the start of the job, in seconds since 1970; ``facts`` are plain values that are worth
    keeping. Of a channel it says whose covariance made it. Files of secret records hold a secret, so their
    hashes reveal nothing.
    """
    from leakbound.storage.provenance import collect

    files = {role: file for role, file in inputs.items() if file is not None}
    seconds = time.time() - began
    if "channel" in files:
        facts["covariance_of"] = covariance_of(files["channel"])
    record = collect(
        plain,
        inputs=files,
        device=device_label(device) if device else "cpu",
        seconds=seconds,
        started=began,
        **facts,
    )
    storage.write_json(path, record, private=private)


def remove_checkpoints(path: Path) -> None:
    """Remove the checkpoints next to the outputs of a job that is done, of which ``path`` is one."""
    for checkpoint in path.parent.glob("checkpoint-*.pt"):
        checkpoint.unlink()


def device_name(asked: str) -> str:
    """Torch device for ``auto``, ``cpu`` or ``cuda``, with convolutions in full float32 as on a CPU.

    Of several GPUs that the environment names the job takes one (:mod:`leakbound.jobs.processes.gpus`).

    Raises:
        typer.BadParameter: If ``cuda`` is asked for and there is none.
        ValueError: If the environment names no GPUs where it should.
    """
    import torch

    if asked != "cpu":
        take_gpu()
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
