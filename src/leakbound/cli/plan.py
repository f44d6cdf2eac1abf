"""Command: the cost of a configuration before anything runs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound.cli.files import ConfigOption
from leakbound.cli.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.costs import PACKAGED, UnitCosts, read_costs
from leakbound.jobs.plan import Machine, plan_text


def plan(
    configfile: ConfigOption = Path("config/config.yaml"),
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=1, max=100_000, help="Jobs side by side, one CPU thread each.")
    ] = 2,
    device: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="By default as configured.")] = None,
    gpu_jobs: Annotated[int, typer.Option(min=1, max=100_000, help="Of these, jobs that share the GPU.")] = 1,
    table: Annotated[Path | None, typer.Option(help="Times of elementary work, CSV; by default the package's.")] = None,
) -> None:
    """Say what a configuration takes before anything runs: jobs, hours and disk per study, and the time of all."""
    made = job_list(reading.load(configfile))
    config = made.table.config
    training = (config.resources.train, config.resources.attack)
    on_gpu = config.device == "cuda" or any(asked.gpu for asked in training)
    where = device or ("cuda" if on_gpu else "cpu")
    costs = UnitCosts(read_costs(table or PACKAGED), where)
    source = "as the package brings them" if table is None else f"from {table}"
    sys.stdout.write(plan_text(made, costs, Machine(jobs, gpu_jobs), source))
