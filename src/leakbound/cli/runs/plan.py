"""Command: the cost of a configuration before anything runs."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.cli.steps.job_list import job_list, try_networks
from leakbound.config import reading
from leakbound.jobs.plan.job_costs import Machine
from leakbound.jobs.plan.plan_text import plan_text
from leakbound.jobs.plan.unit_costs import PACKAGED, UnitCosts, read_costs


def plan(
    configfile: ConfigOption = Path("config/config.yaml"),
    jobs: Annotated[
        int,
        typer.Option("--jobs", "-j", min=1, max=100_000, help="Number of jobs at once, one CPU thread each."),
    ] = 2,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Device to estimate for. Default: the configured one."),
    ] = None,
    gpu_jobs: Annotated[
        int, typer.Option(min=1, max=100_000, help="Number of these jobs that use the GPU at the same time.")
    ] = 1,
    table: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of measured times of elementary work. Default: the table in the package."
        ),
    ] = None,
) -> None:
    """Estimate the jobs, hours and disk space of a configuration before anything runs, and the total time."""
    config = reading.load(configfile)
    try_networks(config, str(configfile))
    made = job_list(config)
    training = (config.resources.train, config.resources.attack)
    on_gpu = config.device == "cuda" or any(resources.gpu for resources in training)
    where = device or ("cuda" if on_gpu else "cpu")
    costs = UnitCosts(read_costs(table or PACKAGED), where)
    source = "of the package" if table is None else f"from {table}"
    sys.stdout.write(plan_text(made, costs, Machine(jobs, gpu_jobs), source))
