"""Command: jobs, hours, disk space and total time of a configuration before anything runs."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound.commands.terminal import text_table
from leakbound_lab.config import reading
from leakbound_lab.config.data import IMAGE_SIDE
from leakbound_lab.jobs.job import JobList, jobs_by_rule, rule_of
from leakbound_lab.jobs.job_costs import JobCost, job_cost, wall_seconds
from leakbound_lab.jobs.unit_costs import PACKAGED, UnitCosts, read_costs
from leakbound_lab.steps.job_list import job_list, try_networks
from leakbound_lab.steps.job_settings import ConfigOption


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
    """Estimate the jobs, hours and disk space of a configuration before anything runs, and the total time.

    Example: leakbound plan --configfile config/small.yaml -j 4

    Example: leakbound plan --configfile config/one_gpu_hour.yaml --device cuda --gpu-jobs 2
    """
    config = reading.load(configfile)
    try_networks(config, str(configfile))
    made = job_list(config)
    training = (config.resources.train, config.resources.attack)
    on_gpu = config.device == "cuda" or any(resources.gpu for resources in training)
    where = device or ("cuda" if on_gpu else "cpu")
    costs = UnitCosts(read_costs(table or PACKAGED), where)
    source = "of the package" if table is None else f"from {table}"
    sys.stdout.write(plan_text(made, costs, source, jobs, gpu_jobs))


_HOUR = 3600.0
_UNKNOWN = "unknown"


def plan_text(made: JobList, costs: UnitCosts, source: str, jobs: int = 2, gpu_jobs: int = 1) -> str:
    """Write the plan of a configuration.

    Args:
        made: Jobs of the configuration.
        costs: Times of elementary work on one device.
        source: Origin of the times, for the first line.
        jobs: Number of jobs at once.
        gpu_jobs: Number of these jobs that use the GPU at the same time.

    Raises:
        ValueError: If work of a job was measured neither on its network nor on LeNet.
    """
    estimates = [job_cost(job, costs) for job in made]
    device = "a GPU" if costs.device == "cuda" else "a CPU"
    counts = Counter(rule for rule, _ in jobs_by_rule(made))
    side = f"{jobs} jobs side by side"
    if costs.device == "cuda":
        side += f", {gpu_jobs} of them on the GPU"
    lines = [
        f"Plan of {made.table.config.preset} on {device}, times {source}",
        "",
        _table(estimates, "about GPU hours" if costs.about else "GPU hours"),
        "Jobs: " + ", ".join(f"{count} {rule}" for rule, count in counts.items()),
        *_shared_runs(made),
        "",
        f"Wall time with {side}: {_duration(wall_seconds(estimates, jobs, gpu_jobs))}",
        *(f"* {note}" for note in sorted({*costs.notes, *_guesses(made)})),
    ]
    return "\n".join(lines) + "\n"


def _table(estimates: Sequence[JobCost], on_gpu: str) -> str:
    """Write the table: one line for each purpose, and the total. A job of several purposes counts with the first."""
    purposes: dict[str, list[JobCost]] = {}
    first: dict[tuple[str, str], str] = {}
    for estimate in estimates:
        purposes.setdefault(estimate.job.purpose, []).append(estimate)
        first.setdefault(rule_of(estimate.job), estimate.job.purpose)
    rows = [["study", "jobs", "CPU hours", on_gpu, "disk"]]
    for name, group in [*purposes.items(), ("total", estimates)]:
        jobs = sum(name in (purpose, "total") for purpose in first.values())
        cpu = sum(estimate.cpu_seconds for estimate in group)
        gpu = sum(math.nan if estimate.gpu_seconds is None else estimate.gpu_seconds for estimate in group)
        hours = _UNKNOWN if math.isnan(gpu) else f"{gpu / _HOUR:.2f}"
        disk = _size(sum(estimate.disk for estimate in group))
        rows.append([name, str(jobs), f"{cpu / _HOUR:.2f}", hours, disk])
    return text_table(rows)


def _shared_runs(jobs: JobList) -> Iterator[str]:
    """Yield sentences on the runs that a study shares with earlier ones."""
    for study, slugs in jobs.table.studies.items():
        shared = sum(jobs.table.first_study[slug] != study for slug in slugs)
        if shared:
            yield f"{study}: {shared} of its {len(slugs)} runs are those of studies above, and count there"


def _guesses(jobs: JobList) -> Iterator[str]:
    """Yield notes on datasets whose sizes differ from those of the measurements, and on figures that are left out."""
    yield from (
        f"figure {figure.paper}/{figure.id} is left out: study {figure.study} lacks what it selects"
        for figure in jobs.table.left_out
    )
    for job in jobs.of("prepare"):
        size = jobs.table.size(job.name)
        if not size.known:
            yield f"dataset {job.name}: colors, classes and sizes that are not configured are guessed"
        if size.side != IMAGE_SIDE:
            yield f"dataset {job.name}: networks are taken to be those for images of side {IMAGE_SIDE}"


def _size(count: float) -> str:
    """Write bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float | None) -> str:
    """Write seconds in a readable unit."""
    if seconds is None:
        return _UNKNOWN
    if seconds < 120:
        return f"about {seconds:.0f} seconds"
    if seconds < 2 * _HOUR:
        return f"about {seconds / 60:.{1 if seconds < 600 else 0}f} minutes"
    return f"about {seconds / _HOUR:.1f} hours"
