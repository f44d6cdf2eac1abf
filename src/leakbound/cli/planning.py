"""Commands: time the training steps of defenses; say what a configuration costs before anything runs."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import TypeAdapter

from leakbound import storage
from leakbound.cli.files import (
    DatasetOption,
    SettingsOption,
    device_label,
    device_name,
    read_channel,
    read_dataset,
    read_settings,
)
from leakbound.config import Defense, EfficiencyConfig, TrainingConfig

if TYPE_CHECKING:
    from leakbound.training import TrainingRequest

_CAREFUL = 1e-4  # learning rate: keeps weights finite, and costs what any other does


def measure(
    settings: SettingsOption,
    dataset: DatasetOption,
    rows: Annotated[Path, typer.Option(help="Times, Parquet.")],
    provenance: Annotated[Path, typer.Option(help="Provenance, JSON.")],
    channel: Annotated[list[str] | None, typer.Option(help="DEFENSE=FILE: its channel; repeatable.")] = None,
    spectrum: Annotated[list[str] | None, typer.Option(help="DEFENSE=FILE: that channel's spectrum.")] = None,
) -> None:
    """Time training steps of every defense and network, in turns in one process."""
    import pandas as pd
    import torch

    from leakbound.provenance import collect
    from leakbound.training.efficiency import efficiency_rows, measure_steps

    given = read_settings(settings)
    config = EfficiencyConfig.model_validate(given["config"])
    channels, spectra = _named_files(channel), _named_files(spectrum)
    began = time.time()
    found = []
    for model in config.models:
        requests = _timed(given, config, model, dataset, channels, spectra)
        times = measure_steps(requests, steps=config.steps, repeats=config.repeats, max_seconds=config.max_seconds)
        levels = {name: float("nan") if one.level is None else one.level for name, one in requests.items()}
        found.append(times.assign(model=model, level=times["defense"].map(levels)))
        sys.stderr.write(f"{model}: {times.groupby('defense')['seconds'].median().round(4).to_dict()} s a step\n")
    storage.write_rows(rows, efficiency_rows(pd.concat(found, ignore_index=True), config))
    files = {f"channel of {name}": path for name, path in channels.items()}
    files |= {f"spectrum of {name}": path for name, path in spectra.items()}
    record = collect(
        given,
        inputs={"dataset": dataset, **files},
        device=device_label(device_name(given["device"])),
        seconds=time.time() - began,
        started=began,
        threads=torch.get_num_threads(),
    )
    storage.write_json(provenance, record)


def _named_files(given: list[str] | None) -> dict[str, Path]:
    """Files by the name before the equals sign."""
    pairs = [text.partition("=") for text in given or []]
    return {name: Path(path) for name, _, path in pairs}


def _timed(
    given: dict[str, Any],
    config: EfficiencyConfig,
    model: str,
    dataset: Path,
    channels: dict[str, Path],
    spectra: dict[str, Path],
) -> dict[str, TrainingRequest]:
    """Defense to what its training asks for."""
    from leakbound.training import TrainingRequest

    images = read_dataset(dataset)
    return {
        name: TrainingRequest(
            dataset=images,
            model=model,
            defense=TypeAdapter(Defense).validate_python(given["defenses"][name]),
            level=next(iter(levels), None),
            rounds=1,
            batch_size=config.batch_size,
            learning_rate=_CAREFUL,
            config=TrainingConfig(momentum=given["momentum"]),
            seed=given["seed"],
            slug=f"{config.dataset}/{model}/{name}/efficiency",
            channel=read_channel(channels.get(name), spectra.get(name))[0],
            device=device_name(given["device"]),
        )
        for name, levels in config.defenses.items()
    }
