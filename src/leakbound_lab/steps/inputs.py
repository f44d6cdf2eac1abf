"""Files that several steps share: images, moments, estimates, provenance and devices."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakbound import storage
from leakbound.commands.files import expected
from leakbound_lab.jobs.coordination import take_gpu

if TYPE_CHECKING:
    from leakbound.channels.channel import GaussianChannel, Spectrum
    from leakbound.channels.covariance import Moments
    from leakbound_lab.attacks.learned_estimate.estimator import Estimator
    from leakbound_lab.datasets import ImageDataset

BARE = "bare"
"""Fingerprint of the code of a command that was called without one."""


def read_dataset(path: Path) -> ImageDataset:
    """Read images that `step prepare` wrote.

    Args:
        path: File of images.

    Raises:
        DamagedFileError: If the file does not match its seal.
        ValueError: If it is another kind of file.
    """
    from leakbound_lab.datasets import Drawing, ImageDataset

    with expected(path, "prepare"):
        arrays, metadata = storage.read_arrays_and_metadata(path)
        return ImageDataset.from_arrays(
            metadata["name"],
            tuple(map(str, json.loads(metadata["classes"]))),
            arrays,
            Drawing(**json.loads(metadata["drawing"])),
            secret=metadata.get("secret", ""),
            label_nats=json.loads(metadata.get("label_nats", "null")),
            scale=json.loads(metadata.get("scale", "{}")),
        )


def read_moments(path: Path) -> Moments:
    """Read a mean and a covariance that `step covariance` wrote.

    Args:
        path: File of moments.

    Raises:
        DamagedFileError: If the file does not match its seal.
        ValueError: If it is another kind of file.
    """
    from leakbound.channels.covariance import Moments

    with expected(path, "covariance"):
        return Moments.from_arrays(storage.read_arrays(path))


def covariance_of(path: Path) -> str:
    """Return the records, ``aux`` or ``members``, whose covariance a file of moments, a spectrum or a channel has.

    If a file does not state them, they are taken to be the members, which nobody should publish.

    Args:
        path: File of moments, spectrum or channel.
    """
    return storage.read_metadata(path).get("covariance_of", "members")


def refuse_excess(exceeds: bool, where: Path, accepted: float) -> None:
    """Refuse records under whose own moments a channel reveals too much.

    The message states no measured number, because more people read logs.

    Args:
        exceeds: True if the channel reveals too much.
        where: File of the records.
        accepted: Multiple of the capacity that is accepted.

    Raises:
        typer.BadParameter: If ``exceeds``.
    """
    if exceeds:
        raise typer.BadParameter(
            f"{where}: under the moments of these images the channel reveals over {accepted:g} times its capacity. The "
            "images have another scale or another distribution than those of the calibration. If they are right, "
            "prepare more of the attacker's records (aux), or set accept_capacity to a larger multiple"
        )


def check_passing(
    images: ImageDataset, channel: Path, noise: GaussianChannel, source: Spectrum, where: Path
) -> None:
    """Refuse images for which a channel was not calibrated.

    A sample of the pool is compared with the channel's capacity, and all directions of the sample with those
    of the calibration images.

    Args:
        images: Images of a dataset.
        channel: File of the channel.
        noise: The channel.
        source: Its spectrum.
        where: File of the images, for the message.

    Raises:
        typer.BadParameter: If the moments of the images give more than the accepted multiple of the capacity,
            or if noise that follows the calibration data hides next to nothing of them.
    """
    import numpy as np

    from leakbound.channels.channel import signal_to_noise
    from leakbound.channels.observed import REFUSED, own_capacity, sample_size, unspanned

    pool = images.pool.images
    chosen = np.random.default_rng(0).permutation(len(pool))[: sample_size(pool[0].size)]
    rows = pool[np.sort(chosen)].reshape(len(chosen), -1).astype(np.float64)
    if noise.dimension != rows.shape[1]:
        return  # the user of the channel refuses this
    accepted = float(storage.read_metadata(channel).get("accept_capacity", REFUSED))
    capacity = own_capacity(rows, noise, signal_to_noise(noise, source))
    refuse_excess(capacity.exceeds(accepted), where, accepted)
    if unspanned(rows, noise, source):
        raise typer.BadParameter(
            f"{where}: an image varies where no calibration image does, and {noise.shape} noise hides next "
            "to nothing there: use the shape natural, or prepare more of the attacker's records (aux)"
        )


def read_estimator(path: Path, images: ImageDataset) -> Estimator:
    """Read a learned estimate that `step estimator` wrote.

    Args:
        path: File of the estimate.
        images: Images that it will estimate.

    Raises:
        typer.BadParameter: If it was trained on images of another shape.
    """
    from leakbound_lab.attacks.learned_estimate.estimator import Estimator

    with expected(path, "estimator"):
        estimator = Estimator.from_arrays(*storage.read_arrays_and_metadata(path))
    if estimator.image_shape != (shape := images.aux.images.shape[1:]):
        raise typer.BadParameter(
            f"{path}: was trained on images of shape {estimator.image_shape}, these have {shape}"
        )
    return estimator


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
    """Write the provenance of a result: settings as given, inputs, device and times.

    If there is a channel, the provenance states whose covariance it was made from. Files of secret records
    contain a secret, so their hashes reveal nothing.

    Args:
        path: File to write.
        plain: Settings as they were given.
        inputs: Role to file, None for files that were not given.
        device: Torch device, None for work on the CPU alone.
        began: Start of the job, in seconds since 1970.
        private: True if only the owner may read the file.
        facts: Further plain values.
    """
    from leakbound.storage.provenance import collect

    files = {role: file for role, file in inputs.items() if file is not None}
    if "channel" in files:
        facts["covariance_of"] = covariance_of(files["channel"])
    facts |= {"device": device_label(device) if device else "cpu", "seconds": time.time() - began}
    record = collect(plain, inputs=files, started=began, **facts)
    storage.write_json(path, record, private=private)


def remove_checkpoints(path: Path) -> None:
    """Remove the checkpoints of a finished job.

    Args:
        path: One of its outputs. The checkpoints lie next to it.
    """
    for checkpoint in path.parent.glob("checkpoint-*.pt"):
        checkpoint.unlink()


def device_name(device: str) -> str:
    """Choose the torch device for ``auto``, ``cpu`` or ``cuda``. Convolutions use full float32, as on a CPU.

    If the environment names several GPUs, the job takes one (:func:`~leakbound_lab.jobs.coordination.take_gpu`).

    Args:
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        typer.BadParameter: For ``cuda`` if there is no GPU.
        ValueError: If the environment's list of GPUs is wrong.
    """
    import torch

    if device != "cpu":
        take_gpu()
    torch.backends.cudnn.allow_tf32 = False
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter('device = "cuda": no CUDA device is visible; use "auto" or "cpu"')
    return device


def device_label(device: str) -> str:
    """Return the name of a device for provenance.

    Args:
        device: Torch device, ``cpu`` or ``cuda``.
    """
    import torch

    if device == "cpu":
        return f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
    return torch.cuda.get_device_name()
