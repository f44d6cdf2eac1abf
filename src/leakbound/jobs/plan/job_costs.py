"""Cost of results from measured times of their elementary work, and the total time of jobs that run at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from leakbound.jobs.job import Job
from leakbound.jobs.plan.schedule import makespan
from leakbound.jobs.plan.unit_costs import UnitCosts
from leakbound.jobs.shared_jobs import rule_of


@dataclass(frozen=True)
class JobCost:
    """Cost of one result.

    Attributes:
        job: The result.
        cpu_seconds: Time on one thread of a CPU.
        gpu_seconds: Time on a GPU, 0 for a result without one. None if such work was not measured.
        disk: Bytes of its outputs, if they are large.
    """

    job: Job
    cpu_seconds: float
    gpu_seconds: float | None
    disk: float


def job_cost(job: Job, costs: UnitCosts) -> JobCost:
    """Estimate the cost of a result from measured times of its elementary work.

    Args:
        job: Result of a configuration.
        costs: Times of elementary work on one device.

    Raises:
        ValueError: If its work was measured neither on its network nor on LeNet.
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
            estimates: Cost of each result. Those of one job are made one after another.

        Returns:
            Seconds. None if the time of one job is not known.
        """
        on_gpu = [estimate.gpu_seconds for estimate in estimates if estimate.gpu_seconds is not None]
        if len(on_gpu) < len(estimates):
            return None
        numbers: dict[tuple[str, str], int] = {}
        batch = [numbers.setdefault(rule_of(estimate.job), len(numbers)) for estimate in estimates]
        seconds = [0.0] * len(numbers)
        shared = [False] * len(numbers)
        maker: dict[str, int] = {}
        for number, estimate, gpu in zip(batch, estimates, on_gpu, strict=True):
            seconds[number] += estimate.cpu_seconds + gpu
            shared[number] |= gpu > 0
            maker |= dict.fromkeys(estimate.job.outputs.values(), number)
        needs: list[set[int]] = [set() for _ in numbers]
        for number, estimate in zip(batch, estimates, strict=True):
            needs[number] |= {maker[path] for path in estimate.job.input_files() if path in maker} - {number}
        return makespan(seconds, needs, shared, self.jobs, self.gpu_jobs)
