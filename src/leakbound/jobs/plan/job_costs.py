"""Cost of jobs from measured times of their elementary work, and the total time of jobs that run at once."""

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
        cpu_seconds: Time on one thread of a CPU.
        gpu_seconds: Time on a GPU, 0 for a job without one. None if such work was not measured.
        disk: Bytes of its outputs, if they are large.
    """

    job: Job
    cpu_seconds: float
    gpu_seconds: float | None
    disk: float


def job_cost(job: Job, costs: UnitCosts) -> JobCost:
    """Estimate the cost of a job from measured times of its elementary work.

    Args:
        job: Job of a configuration.
        costs: Times of elementary work on one device.

    Raises:
        ValueError: If work of the job was measured neither on its network nor on LeNet.
    """
    cpu = costs.start(job.step)
    gpu: float | None = 0.0
    disk = 0.0
    for work in job.work():
        if work.kind == "disk":
            disk += work.amount
        elif work.kind == "parameters":
            disk += work.amount * costs.on_cpu(work.kind, work.model, work.colors)
        elif costs.device == "cpu" or not work.model:
            cpu += costs.seconds(work) or 0.0
        else:
            seconds = costs.seconds(work)
            gpu = None if gpu is None or seconds is None else gpu + seconds
    return JobCost(job, cpu, gpu, disk)


@dataclass(frozen=True)
class Machine:
    """The machine that runs jobs.

    Attributes:
        jobs: Number of jobs at once, as in ``snakemake -j``, with one CPU thread each.
        gpu_jobs: Number of these jobs that share the GPU.
    """

    jobs: int = 2
    gpu_jobs: int = 1

    def wall_seconds(self, estimates: Sequence[JobCost]) -> float | None:
        """Estimate the time until the last job ends, if each job begins once its inputs exist and a place is free.

        The estimate assumes that memory suffices, and that jobs on a shared GPU do not slow each other down.
        This is right for small networks, whose time on a GPU is that of starting kernels. For large networks
        the estimate is too short.

        Args:
            estimates: Cost of each job.

        Returns:
            Seconds. None if the time of one job is not known.
        """
        on_gpu = [estimate.gpu_seconds for estimate in estimates if estimate.gpu_seconds is not None]
        if len(on_gpu) < len(estimates):
            return None
        seconds = [estimate.cpu_seconds + gpu for estimate, gpu in zip(estimates, on_gpu, strict=True)]
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
