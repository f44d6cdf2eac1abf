"""Cost of jobs from measured times of the elementary work in them, and the time of all side by side."""

from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.jobs.job import Job
from leakbound.jobs.plan.schedule import makespan
from leakbound.jobs.plan.unit_costs import UnitCosts


@dataclass(frozen=True)
class JobCost:
    """Cost of one job.

    Attributes:
        job: The job.
        cpu_seconds: On one thread of a CPU.
        gpu_seconds: On a GPU, 0 for a job without one. None if nobody has measured such work.
        disk: Bytes of its outputs, as far as they are large.
    """

    job: Job
    cpu_seconds: float
    gpu_seconds: float | None
    disk: float


def job_cost(job: Job, costs: UnitCosts) -> JobCost:
    """Estimate the cost of a job from measured times of the elementary work in it."""
    cpu = costs.start(job.step)
    gpu: float | None = 0.0
    disk = 0.0
    for work in job.work():
        if work.kind == "disk":
            disk += work.amount
        elif work.kind == "parameters":
            disk += work.amount * costs.parameters(work.model, work.colors)
        elif costs.device == "cpu" or not work.model:
            cpu += costs.seconds(work) or 0.0
        else:
            seconds = costs.seconds(work)
            gpu = None if gpu is None or seconds is None else gpu + seconds
    return JobCost(job, cpu, gpu, disk)


@dataclass(frozen=True)
class Machine:
    """The machine that jobs run on.

    Attributes:
        jobs: Jobs side by side, as ``snakemake -j`` has it, one CPU thread each.
        gpu_jobs: Of these, jobs that share the GPU.
    """

    jobs: int = 2
    gpu_jobs: int = 1

    def wall_seconds(self, estimates: Sequence[JobCost]) -> float | None:
        """Time until the last job is done, if each begins once what it reads is there and a place is free.

        Memory is taken to be enough, and jobs that share the GPU not to slow each other down: right for small
        networks, whose time on a GPU is that of starting its kernels, and too short for large ones.

        Returns:
            Seconds. None if the time of one job is not known.
        """
        seconds = []
        for estimate in estimates:
            if estimate.gpu_seconds is None:
                return None
            seconds.append(estimate.cpu_seconds + estimate.gpu_seconds)
        maker = {
            path: number
            for number, estimate in enumerate(estimates)
            for path in estimate.job.outputs.values()
        }
        needs = [
            {maker[path] for path in estimate.job.input_files() if path in maker} for estimate in estimates
        ]
        return makespan(
            seconds, needs, [bool(estimate.gpu_seconds) for estimate in estimates], self.jobs, self.gpu_jobs
        )
