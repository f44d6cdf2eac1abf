"""Commands: time the training steps of defenses; say what a configuration costs before anything runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import storage
from leakbound.cli.files import (
    DatasetOption,
    SettingsOption,
    check_outputs,
    device_label,
    device_name,
    plain_settings,
    read_channel,
    read_dataset,
    read_settings,
)
from leakbound.cli.jobs import MeasureJob
from leakbound.cli.tracking import ConfigOption
from leakbound.config.training import TrainingConfig
from leakbound.config.whole import Config

if TYPE_CHECKING:
    from leakbound.training.request import TrainingRequest


class Device(StrEnum):
    """Where trainings and attacks run."""

    cpu = "cpu"
    cuda = "cuda"


DeviceOption = Annotated[Device, typer.Option(help="Where the work is done.")]
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

    from leakbound.storage.provenance import collect
    from leakbound.training.efficiency import efficiency_rows, measure_steps

    check_outputs(rows, provenance)
    job = read_settings(settings, MeasureJob)
    config = job.config
    channels, spectra = _named_files(channel), _named_files(spectrum)
    began = time.time()
    found = []
    for model in config.models:
        requests = _timed(job, model, dataset, channels, spectra)
        times = measure_steps(requests, steps=config.steps, repeats=config.repeats, max_seconds=config.max_seconds)
        levels = {name: float("nan") if one.level is None else one.level for name, one in requests.items()}
        found.append(times.assign(model=model, level=times["defense"].map(levels)))
        sys.stderr.write(f"{model}: {times.groupby('defense')['seconds'].median().round(4).to_dict()} s a step\n")
    storage.write_rows(rows, efficiency_rows(pd.concat(found, ignore_index=True), config))
    files = {f"channel of {name}": path for name, path in channels.items()}
    files |= {f"spectrum of {name}": path for name, path in spectra.items()}
    record = collect(
        plain_settings(settings),
        inputs={"dataset": dataset, **files},
        device=device_label(device_name(job.device)),
        seconds=time.time() - began,
        started=began,
        threads=torch.get_num_threads(),
    )
    storage.write_json(provenance, record)


def _named_files(given: list[str] | None) -> dict[str, Path]:
    """Files by the name before the equals sign."""
    pairs = [text.partition("=") for text in given or []]
    for name, _, path in pairs:
        if not (name and path):
            raise typer.BadParameter(f"{name}{path}: give DEFENSE=FILE")
    return {name: Path(path) for name, _, path in pairs}


def _timed(
    job: MeasureJob,
    model: str,
    dataset: Path,
    channels: dict[str, Path],
    spectra: dict[str, Path],
) -> dict[str, TrainingRequest]:
    """Defense to what its training asks for."""
    from leakbound.training.request import TrainingRequest

    images, config = read_dataset(dataset), job.config
    return {
        name: TrainingRequest(
            dataset=images,
            model=model,
            defense=job.defenses[name],
            level=next(iter(levels), None),
            rounds=1,
            batch_size=config.batch_size,
            learning_rate=_CAREFUL,
            config=TrainingConfig(momentum=job.momentum),
            seed=job.seed,
            privacy_noise=job.privacy_noise,
            slug=f"{config.dataset}/{model}/{name}/efficiency",
            channel=read_channel(channels.get(name), spectra.get(name))[0],
            device=device_name(job.device),
        )
        for name, levels in config.defenses.items()
    }


def costs(
    out: Annotated[Path, typer.Option(help="Table of times, CSV; other entries in it are kept.")],
    model: Annotated[list[str], typer.Option(help="Registered network; repeatable.")],
    colors: Annotated[
        list[int] | None, typer.Option(min=1, max=3, help="Colors of its images; repeatable, by default 3.")
    ] = None,
    device: DeviceOption = Device.cpu,
    max_seconds: Annotated[
        float, typer.Option(min=0.0, max=86_400.0, help="Longest turn of a defense, seconds.")
    ] = 10.0,
) -> None:
    """Time the elementary work of training and attacks on this machine, for `plan`."""
    from leakbound.cli.plan.costs import read_costs, write_costs

    check_outputs(out)
    rows = read_costs(out) if out.is_file() else []
    write_costs(out, [*rows, *_measured([(name, one) for name in model for one in colors or [3]], device, max_seconds)])


def plan(
    configfile: ConfigOption = Path("config/config.yaml"),
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=100_000, help="Jobs side by side, one CPU thread each.")
    ] = 2,
    device: Annotated[Device | None, typer.Option(help="Where it would train; by default as configured.")] = None,
    gpu_jobs: Annotated[int, typer.Option(min=1, max=100_000, help="Of these, jobs that share the GPU.")] = 1,
    table: Annotated[Path | None, typer.Option(help="Times that `costs` wrote; by default the package's.")] = None,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the networks on this machine first.")] = False,
) -> None:
    """Say what a configuration takes before anything runs: jobs, hours and disk per study, and the time of all."""
    from leakbound.cli.plan.costs import PACKAGED, UnitCosts, read_costs
    from leakbound.cli.plan.estimates import jobs_of, networks
    from leakbound.cli.plan.report import Machine, as_text
    from leakbound.config import reading
    from leakbound.jobs.table import RunTable

    config = reading.load(configfile)
    runs = RunTable(config, reading.load_catalogue(config.catalogue, config))
    where = device or Device("cuda" if "cuda" in (config.device, *_gpus(config)) else "cpu")
    rows, source = read_costs(table or PACKAGED), "as the package brings them" if table is None else f"from {table}"
    if measure:
        rows += _measured(networks(runs), where)
        source = f"measured here; what every job takes {source}"
    unit_costs = UnitCosts(rows, where.value)
    found = jobs_of(runs, unit_costs)
    sys.stdout.write(as_text(runs, found, unit_costs, Machine(jobs, gpu_jobs), source))


def _gpus(config: Config) -> list[str]:
    """``cuda`` if a box of the chain asks for a GPU."""
    boxes = (config.resources.tune, config.resources.train, config.resources.attack)
    return ["cuda"] * any(box.gpu for box in boxes)


def _measured(found: Sequence[tuple[str, int]], device: Device, max_seconds: float = 10.0) -> list[dict[str, Any]]:
    """Rows of the table of costs for networks on images of some colors."""
    import torch

    from leakbound.cli.plan.measuring import measure_unit_costs

    torch.set_num_threads(1)  # a plan counts jobs of one thread each
    label, day = device_label(device_name(device.value)), datetime.now(UTC).date()
    source = f"{label}, torch {torch.__version__.partition('+')[0]}, {day}"
    tables = [measure_unit_costs(name, colors, device.value, max_seconds=max_seconds) for name, colors in found]
    return [{**row, "source": source} for one in tables for row in one.to_dict("records")]
