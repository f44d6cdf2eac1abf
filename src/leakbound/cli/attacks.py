"""Command: attack a trained network, or the gradients of an untrained one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from leakbound import storage
from leakbound.cli.files import (
    ChannelOption,
    DatasetOption,
    SettingsOption,
    SpectrumOption,
    device_label,
    device_name,
    read_channel,
    read_dataset,
    read_moments,
    read_settings,
)
from leakbound.config import (
    TRAINED_ATTACKS,
    TRAINED_MEASURES,
    Defense,
    GradientCapacityConfig,
    GradientInversionConfig,
    MembershipConfig,
    ModelInversionConfig,
    Settings,
)


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
    from leakbound.provenance import collect
    from leakbound.registry import ATTACKS

    given = read_settings(settings)
    name, device = given["attack"], device_name(given["device"])
    arguments: dict[str, Any] = {
        "model": given["model"],
        "dataset": read_dataset(dataset),
        "config": _config(name, given["config"]),
        "seed": given["seed"],
        "slug": given["slug"],
        "device": device,
    }
    if weights is None:
        arguments |= _gradient_inputs(given, channel, spectrum, moments)
    else:
        arguments["weights"] = _tensors(weights)
        if name == "gradient_capacity":
            arguments |= _clipping(given)
    began = time.time()
    found, kept = ATTACKS.get(name)(**arguments)
    storage.write_rows(rows, found)
    storage.write_arrays(arrays, kept)
    files = {"dataset": dataset, "weights": weights, "channel": channel, "spectrum": spectrum, "moments": moments}
    inputs = {role: path for role, path in files.items() if path is not None}
    seconds = time.time() - began
    record = collect(given, inputs=inputs, device=device_label(device), seconds=seconds, started=began)
    storage.write_json(provenance, record)


def _config(name: str, values: dict[str, Any]) -> Any:
    """Settings of a built-in attack; those of an outside one stay plain."""
    kinds: dict[str, type[Settings]] = {
        "membership": MembershipConfig,
        "model_inversion": ModelInversionConfig,
        "gradient_inversion": GradientInversionConfig,
        "gradient_capacity": GradientCapacityConfig,
    }
    return kinds[name].model_validate(values) if name in kinds else values


def _tensors(path: Path) -> dict[str, Any]:
    """Weights of all replicas as tensors."""
    import torch

    return {name: torch.from_numpy(array) for name, array in storage.read_arrays(path).items()}


def _clipping(given: dict[str, Any]) -> dict[str, Any]:
    """What a client does to its gradients, for what looks at them."""
    return {"defense": TypeAdapter(Defense).validate_python(given["defense"]), "level": given["level"]}


def _gradient_inputs(
    given: dict[str, Any], channel: Path | None, spectrum: Path | None, moments: Path | None
) -> dict[str, Any]:
    """What an attack on gradients knows beside the images: the defense, its channel, and the data's moments."""
    if moments is None or given["attack"] in (*TRAINED_ATTACKS, *TRAINED_MEASURES):
        raise typer.BadParameter(f"{given['attack']} needs --weights, or, if it attacks untrained networks, --moments")
    return {
        "channel": read_channel(channel, spectrum)[0],
        "moments": read_moments(moments),
        **_clipping(given),
        **{name: given[name] for name in ("replicas", "batch_size", "privacy_noise") if name in given},
    }
