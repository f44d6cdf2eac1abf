"""Command: attack a trained network, or the gradients of an untrained one."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from leakbound import storage
from leakbound.cli.files import (
    ChannelOption,
    DatasetOption,
    SettingsOption,
    SpectrumOption,
    check_outputs,
    device_label,
    device_name,
    plain_settings,
    read_channel,
    read_dataset,
    read_moments,
    read_settings,
)
from leakbound.cli.jobs import AttackJob
from leakbound.config.attacks import Attack
from leakbound.config.messages import parse
from leakbound.jobs.runs import Run

if TYPE_CHECKING:
    from leakbound.datasets import ImageDataset


def attack(
    settings: SettingsOption,
    dataset: DatasetOption,
    rows: Annotated[Path, typer.Option(help="Metrics of the attack and of its controls, Parquet.")],
    arrays: Annotated[Path, typer.Option(help="Scores or pictures, safetensors.")],
    provenance: Annotated[Path, typer.Option(help="Provenance, JSON.")],
    weights: Annotated[Path | None, typer.Option(help="Weights, written by `train`.")] = None,
    channel: ChannelOption = None,
    spectrum: SpectrumOption = None,
    moments: Annotated[Path | None, typer.Option(help="Mean and covariance, written by `covariance`.")] = None,
) -> None:
    """Run one attack on all replicas of a run."""
    from leakbound.registry import ATTACKS, load
    from leakbound.storage.provenance import collect

    check_outputs(rows, arrays, provenance)
    job = read_settings(settings, AttackJob)
    config: Attack = parse(ATTACKS.get(job.attack), job.config, "--settings: config")
    device, images = device_name(job.device), read_dataset(dataset)
    arguments: dict[str, Any] = {
        "model": job.model,
        "dataset": images,
        "config": config,
        "seed": job.seed,
        "slug": job.slug,
        "device": device,
    }
    if weights is None:
        arguments |= _gradient_inputs(job, config, images, channel, spectrum, moments)
    else:
        arguments["weights"] = _weights(weights, job, config, images)
        if config.knows_defense:
            arguments |= {**_defense(job), "batch_size": Run.from_slug(job.slug).batch_size}
    began = time.time()
    found, kept = load(config.function, f"function of {job.attack}")(**arguments)
    storage.write_rows(rows, found)
    storage.write_arrays(arrays, kept)
    files = {"dataset": dataset, "weights": weights, "channel": channel, "spectrum": spectrum, "moments": moments}
    inputs = {role: path for role, path in files.items() if path is not None}
    seconds = time.time() - began
    record = collect(
        plain_settings(settings), inputs=inputs, device=device_label(device), seconds=seconds, started=began
    )
    storage.write_json(provenance, record)


def _weights(path: Path, job: AttackJob, config: Attack, images: ImageDataset) -> dict[str, Any]:
    """Weights of all replicas as tensors.

    Raises:
        typer.BadParameter: If the attack takes none.
        DamagedFileError: If they are not those of the run's network on such images.
    """
    import torch

    from leakbound.models import build

    if not config.trained:
        raise typer.BadParameter(f"{job.attack} attacks untrained networks: leave out --weights, and give --moments")
    found = storage.read_arrays(path)
    network = build(job.model, images.colors, len(images.classes), torch.Generator().manual_seed(0))
    expected = {name: (str(np.float32), tuple(tensor.shape)) for name, tensor in network.named_parameters()}
    stored = {name: (str(array.dtype.type), array.shape[1:]) for name, array in found.items()}
    if (
        stored != expected
        or len({array.shape[:1] for array in found.values()}) != 1
        or not len(next(iter(found.values())))
    ):
        raise storage.DamagedFileError(
            path, f"it holds no weights of {job.model} for {images.colors} colors and {len(images.classes)} classes"
        )
    return {name: torch.from_numpy(array) for name, array in found.items()}


def _defense(job: AttackJob) -> dict[str, Any]:
    """Defense of the client and its level, for attacks that know them."""
    return {"defense": job.defense, "level": job.level}


def _gradient_inputs(
    job: AttackJob,
    config: Attack,
    images: ImageDataset,
    channel: Path | None,
    spectrum: Path | None,
    moments: Path | None,
) -> dict[str, Any]:
    """What an attack on gradients knows beside the images: the defense, its channel, and the data's moments."""
    if moments is None or config.trained:
        raise typer.BadParameter(f"{job.attack} needs --weights, or, if it attacks untrained networks, --moments")
    found, known = read_channel(channel, spectrum)[0], read_moments(moments)
    values = math.prod(images.train.images.shape[1:])
    for path, described in ((moments, known), (channel, found)):
        if described is not None and described.dimension != values:
            raise typer.BadParameter(f"{path}: has {described.dimension} dimensions, the images have {values} values")
    return {
        "channel": found,
        "moments": known,
        **_defense(job),
        **job.model_dump(include={"replicas", "batch_size", "privacy_noise"}, exclude_none=True),
    }
