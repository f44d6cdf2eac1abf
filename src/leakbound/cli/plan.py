"""Commands: the cost of a configuration before anything runs, and the measurements behind it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.files import ConfigOption, check_outputs, device_label, device_name
from leakbound.cli.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.costs import PACKAGED, UnitCosts, read_costs, write_costs
from leakbound.jobs.plan import Machine, plan_text


class Device(StrEnum):
    """Device that trains and attacks."""

    cpu = "cpu"
    cuda = "cuda"


def plan(
    configfile: ConfigOption = Path("config/config.yaml"),
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=100_000, help="Jobs side by side, one CPU thread each.")
    ] = 2,
    device: Annotated[Device | None, typer.Option(help="Device that trains; by default as configured.")] = None,
    gpu_jobs: Annotated[int, typer.Option(min=1, max=100_000, help="Of these, jobs that share the GPU.")] = 1,
    table: Annotated[Path | None, typer.Option(help="Times that `costs` wrote; by default the package's.")] = None,
) -> None:
    """Say what a configuration takes before anything runs: jobs, hours and disk per study, and the time of all."""
    made = job_list(reading.load(configfile))
    config = made.table.config
    training = (config.resources.tune, config.resources.train, config.resources.attack)
    on_gpu = config.device == "cuda" or any(asked.gpu for asked in training)
    where = device or (Device.cuda if on_gpu else Device.cpu)
    costs = UnitCosts(read_costs(table or PACKAGED), where.value)
    source = "as the package brings them" if table is None else f"from {table}"
    sys.stdout.write(plan_text(made, costs, Machine(jobs, gpu_jobs), source))


def costs(
    out: Annotated[Path, typer.Option(help="Table of times, CSV; other entries in it are kept.")],
    model: Annotated[list[str], typer.Option(help="Registered network; may be repeated.")],
    colors: Annotated[
        list[int] | None, typer.Option(min=1, max=3, help="Colors of its images; may be repeated, by default 3.")
    ] = None,
    device: Annotated[Device, typer.Option(help="Device that does the work.")] = Device.cpu,
    max_seconds: Annotated[
        float, typer.Option(min=0.0, max=86_400.0, help="Longest turn of a defense, seconds.")
    ] = 10.0,
) -> None:
    """Time the elementary work of training and attacks on this machine, for `plan --table`."""
    import torch

    from leakbound.attacks.unit_costs import measure_unit_costs

    check_outputs(out)
    rows = read_costs(out if out.is_file() else PACKAGED)
    torch.set_num_threads(1)  # a plan counts jobs of one thread each
    label, day = device_label(device_name(device.value)), datetime.now(UTC).date()
    source = f"{label}, torch {torch.__version__.partition('+')[0]}, {day}"
    for name in model:
        for one in colors or [3]:
            found = measure_unit_costs(name, one, device.value, max_seconds=max_seconds).to_dict("records")
            rows += [{**{str(key): value for key, value in row.items()}, "source": source} for row in found]
    write_costs(out, rows)
