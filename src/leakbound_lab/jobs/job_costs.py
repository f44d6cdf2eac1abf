"""Cost of results from measured times of their elementary work, and the total time of jobs that run at once.

Each job begins when its inputs are done and a place is free.
"""

import heapq
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter

from leakbound_lab.jobs.job import Job, rule_of
from leakbound_lab.jobs.unit_costs import UnitCosts, Work, read_costs

SHORT_JOB = 120.0
"""Most seconds that results are planned to take together if one job makes them to save starts."""


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


def planned_seconds(work: Iterable[Work]) -> float:
    """Estimate the time of some work on one thread of a CPU, by the times that come with the package.

    What depends on it, such as which results one job makes, is the same on all machines.

    Args:
        work: Elementary work of results.

    Returns:
        Seconds, without the start of a job.

    Raises:
        ValueError: If such work was measured neither on its network nor on LeNet.
    """
    costs = _packaged_costs()
    return sum(costs.seconds(each) or 0.0 for each in work if each.kind not in ("disk", "parameters"))


@cache
def _packaged_costs() -> UnitCosts:
    """Read the times on a CPU that come with the package."""
    return UnitCosts(read_costs(), "cpu")


def short_jobs(seconds: Mapping[str, float], most: float = SHORT_JOB) -> list[list[str]]:
    """Divide results among jobs that each take a limited time, in order.

    Args:
        seconds: Name to planned seconds of each result.
        most: Most seconds of a job.

    Returns:
        Names of the results of each job. Results that take longer are in none.

    Example:
        >>> short_jobs({"a": 40.0, "b": 70.0, "c": 30.0, "d": 500.0, "e": 20.0}, most=120.0)
        [['a', 'b'], ['c', 'e']]
    """
    jobs: list[list[str]] = []
    left = -math.inf
    for name, time in seconds.items():
        if time <= most:
            if time > left:
                jobs.append([])
                left = most
            jobs[-1].append(name)
            left -= time
    return jobs


def wall_seconds(estimates: Sequence[JobCost], jobs: int = 2, gpu_jobs: int = 1) -> float | None:
    """Estimate the time until the last job ends, if each job begins once its inputs exist and a place is free.

    The estimate assumes that memory suffices, and that jobs on a shared GPU do not slow each other down.
    This is right for small networks, whose time on a GPU is that of starting kernels. For large networks
    the estimate is too short.

    Args:
        estimates: Cost of each result. Those of one job are made one after another.
        jobs: Number of jobs at once, as in ``snakemake -j``, with one CPU thread each.
        gpu_jobs: Number of these jobs that share the GPU.

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
    return makespan(seconds, needs, shared, jobs, gpu_jobs)


def makespan(
    seconds: Sequence[float],
    needs: Sequence[Collection[int]],
    shared: Sequence[bool],
    places: int,
    shared_places: int,
) -> float:
    """Compute the time until the last job ends. If several jobs could begin, the first of the list does.

    Args:
        seconds: Time of each job.
        needs: Numbers of the jobs that each job waits for, without circles.
        shared: True for each job that also takes a scarce place, such as a share of a GPU.
        places: Number of jobs at once.
        shared_places: Number of these jobs that may have a scarce place.

    Example:
        >>> makespan([3.0, 1.0, 1.0], [[], [], [1]], [False] * 3, places=2, shared_places=1)
        3.0
    """
    order = TopologicalSorter(dict(enumerate(needs)))
    order.prepare()
    ready: dict[bool, list[int]] = {False: [], True: []}  # heaps of jobs, by whether they need a scarce place
    free = {False: places, True: min(places, shared_places)}  # all places, and the scarce ones among them
    running: list[tuple[float, int]] = []
    now = 0.0
    while True:
        for number in order.get_ready():
            heapq.heappush(ready[shared[number]], number)
        while (begun := _next_job(ready, free)) is not None:
            free[False] -= 1
            free[True] -= shared[begun]
            heapq.heappush(running, (now + seconds[begun], begun))
        if not running:
            return now
        now, ended = heapq.heappop(running)
        free[False] += 1
        free[True] += shared[ended]
        order.done(ended)


def _next_job(ready: dict[bool, list[int]], free: dict[bool, int]) -> int | None:
    """Remove and return the first ready job for which a place is free. None if there is none."""
    kinds = [kind for kind in ready if ready[kind] and free[kind]]
    if not kinds or not free[False]:
        return None
    return heapq.heappop(ready[min(kinds, key=lambda kind: ready[kind][0])])
