"""Plan of a configuration: the cost of its jobs from measured times of the elementary work in them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.config.data import IMAGE_SIDE
from leakbound.jobs.job import Job, JobList
from leakbound.jobs.plan.costs import UnitCosts
from leakbound.jobs.plan.schedule import makespan

_HOUR = 3600.0
_COLUMNS = ("study", "jobs", "CPU hours", "GPU hours", "disk")
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Estimate:
    """Cost of one job.

    Attributes:
        cpu_seconds: On one thread of a CPU.
        gpu_seconds: On a GPU, 0 for a job without one; None if nobody has measured such work.
        disk: Bytes of its outputs, as far as they are large.
    """

    job: Job
    cpu_seconds: float
    gpu_seconds: float | None
    disk: float


def estimate(job: Job, costs: UnitCosts) -> Estimate:
    """The cost of a job, from measured times of the elementary work in it."""
    cpu, gpu, disk = costs.start(job.step), 0.0, 0.0
    known = True
    for work in job.work():
        if work.kind == "disk":
            disk += work.amount
        elif work.kind == "parameters":
            disk += work.amount * costs.parameters(work.model, work.colors)
        elif costs.device == "cpu" or not work.model:
            cpu += costs.seconds(work) or 0.0
        else:
            seconds = costs.seconds(work)
            known, gpu = known and seconds is not None, gpu + (seconds or 0.0)
    return Estimate(job, cpu, gpu if known else None, disk)


@dataclass(frozen=True)
class Machine:
    """The machine that jobs run on.

    Attributes:
        jobs: Jobs side by side, as ``snakemake -j`` has it, one CPU thread each.
        gpu_jobs: Of these, jobs that share the GPU.
    """

    jobs: int = 2
    gpu_jobs: int = 1

    def wall_seconds(self, estimates: Sequence[Estimate]) -> float | None:
        """Time until the last job is done, if each begins once what it reads is there and a place is free.

        None if one's time is not known. Memory is taken to be enough, and jobs that share the GPU not to slow each
        other down: right for small networks, whose time on a GPU is that of starting its kernels, and too short for
        large ones.
        """
        if any(one.gpu_seconds is None for one in estimates):
            return None
        seconds = [one.cpu_seconds + (one.gpu_seconds or 0.0) for one in estimates]
        maker = {path: number for number, one in enumerate(estimates) for path in one.job.outputs.values()}
        needs = [{maker[path] for path in one.job.input_files() if path in maker} for one in estimates]
        return makespan(seconds, needs, [bool(one.gpu_seconds) for one in estimates], self.jobs, self.gpu_jobs)


def plan_text(jobs: JobList, costs: UnitCosts, machine: Machine, source: str) -> str:
    """Plan of a configuration: jobs, hours and disk of each study, and the time of all; ``source`` names the times."""
    estimates = [estimate(job, costs) for job in jobs]
    purposes = list(dict.fromkeys(job.purpose for job in jobs))
    body = [_line(name, [one for one in estimates if one.job.purpose == name]) for name in purposes]
    rows = [_COLUMNS, *body, _line("total", estimates)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    device = "a GPU" if costs.device == "cuda" else "a CPU"
    lines = [f"Plan of {jobs.table.config.preset} on {device}, times {source}", ""]
    for row in rows:
        first, *numbers = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        lines.append("  ".join([first.strip().ljust(widths[0]), *numbers]))
    counts = Counter(job.step for job in jobs)
    lines += ["", "Jobs: " + ", ".join(f"{count} {step}" for step, count in counts.items())]
    for study, slugs in jobs.table.studies.items():
        if shared := sum(jobs.table.first_study[slug] != study for slug in slugs):
            lines.append(f"{study}: {shared} of its {len(slugs)} runs are those of studies above, and count there")
    for job in jobs.of("prepare"):
        size = jobs.table.size(job.name)
        if not size.known:
            costs.notes.add(f"dataset {job.name}: colors, classes and sizes that are not configured are guessed")
        if size.side != IMAGE_SIDE:
            costs.notes.add(f"dataset {job.name}: networks are taken to be those for images of side {IMAGE_SIDE}")
    side = f"{machine.jobs} jobs side by side"
    if costs.device == "cuda":
        side += f", {machine.gpu_jobs} of them on the GPU"
    lines += ["", f"Wall time with {side}: {_duration(machine.wall_seconds(estimates))}"]
    lines += [f"* {note}" for note in sorted(costs.notes)]
    return "\n".join(lines) + "\n"


def _line(name: str, estimates: Sequence[Estimate]) -> tuple[str, ...]:
    """One row of the plan."""
    gpu = [one.gpu_seconds for one in estimates]
    hours = _UNKNOWN if None in gpu else f"{sum(one or 0.0 for one in gpu) / _HOUR:.2f}"
    cpu, disk = sum(one.cpu_seconds for one in estimates), sum(one.disk for one in estimates)
    return (name, str(len(estimates)), f"{cpu / _HOUR:.2f}", hours, _size(disk))


def _size(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float | None) -> str:
    """Seconds in a readable unit."""
    if seconds is None:
        return _UNKNOWN
    if seconds < 120:
        return f"about {seconds:.0f} seconds"
    if seconds < 600:
        return f"about {seconds / 60:.1f} minutes"
    return f"about {seconds / 60:.0f} minutes" if seconds < 2 * _HOUR else f"about {seconds / _HOUR:.1f} hours"
