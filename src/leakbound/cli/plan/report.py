"""A plan as text: hours, jobs and disk per study, and when it would be done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.cli.plan.costs import UnitCosts
from leakbound.cli.plan.estimates import Job, shared_runs
from leakbound.jobs.table import RunTable

_HOUR = 3600.0
_PER_JOB = 0.3  # guess: seconds that the workflow itself spends on a job
_COLUMNS = ("study", "jobs", "CPU hours", "GPU hours", "disk")


@dataclass(frozen=True)
class Machine:
    """What the jobs run on.

    Attributes:
        jobs: Jobs side by side, as ``snakemake -j`` has it, one CPU thread each.
        gpu_jobs: Of these, jobs that share the GPU.
    """

    jobs: int = 2
    gpu_jobs: int = 1

    def wall_seconds(self, jobs: Sequence[Job]) -> float:
        """Least time that all jobs take, if none has to wait for others.

        Jobs that share the GPU are taken not to slow each other down: right for small networks, whose time on a GPU is
        that of starting its kernels, and too short for large ones.
        """
        on_gpu = [job for job in jobs if job.gpu_seconds]
        held = sum(job.cpu_seconds + job.gpu_seconds for job in on_gpu) / min(self.gpu_jobs, self.jobs)
        cpu = sum(job.cpu_seconds for job in jobs) / self.jobs
        longest = max((job.cpu_seconds + job.gpu_seconds for job in jobs), default=0.0)
        return max(held, cpu, longest) + _PER_JOB * len(jobs)


def as_text(table: RunTable, jobs: Sequence[Job], costs: UnitCosts, machine: Machine, source: str) -> str:
    """The plan of a configuration.

    Args:
        table: Its run table.
        jobs: Its jobs.
        costs: What the times came from.
        machine: What it would run on.
        source: Where the measured times come from, in a few words.
    """
    studies = list(dict.fromkeys(job.study for job in jobs))
    body = [_line(name, [job for job in jobs if job.study == name]) for name in studies]
    rows = [_COLUMNS, *body, _line("total", jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [f"Plan of {table.config.preset} on {'a GPU' if costs.device == 'cuda' else 'a CPU'}, times {source}", ""]
    for row in rows:
        name, *numbers = (text.rjust(width) for text, width in zip(row, widths, strict=True))
        lines.append("  ".join([row[0].ljust(widths[0]), *numbers]))
    kinds = Counter(job.kind for job in jobs)
    lines += ["", "Jobs: " + ", ".join(f"{count} {kind}" for kind, count in kinds.items())]
    for name in table.members:
        if shared := shared_runs(table, name):
            runs = len(table.members[name])
            lines.append(f"{name}: {shared} of its {runs} runs are those of studies above, and count there")
    side = f"{machine.jobs} jobs side by side"
    if costs.device == "cuda":
        side += f", {machine.gpu_jobs} of them on the GPU"
    lines += ["", f"Wall time with {side}: about {_duration(machine.wall_seconds(jobs))}"]
    lines += [f"* {note}" for note in sorted(costs.notes)]
    return "\n".join(lines) + "\n"


def _line(name: str, jobs: Sequence[Job]) -> tuple[str, ...]:
    """One row of the table."""
    cpu, gpu = sum(job.cpu_seconds for job in jobs), sum(job.gpu_seconds for job in jobs)
    return (name, str(len(jobs)), f"{cpu / _HOUR:.2f}", f"{gpu / _HOUR:.2f}", _size(sum(job.disk for job in jobs)))


def _size(count: float) -> str:
    """Bytes in a readable unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _duration(seconds: float) -> str:
    """Seconds in a readable unit."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 2 * _HOUR else f"{seconds / _HOUR:.1f} hours"
