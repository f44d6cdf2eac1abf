"""Total time of jobs that run at once. Each begins when its inputs are done and a place is free."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence


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
    waiting = [set(others) for others in needs]
    readers: dict[int, list[int]] = defaultdict(list)
    for number, others in enumerate(waiting):
        for other in others:
            readers[other].append(number)
    ready: dict[bool, list[int]] = {False: [], True: []}  # heaps of jobs, by whether they need a scarce place
    for number, others in enumerate(waiting):
        if not others:
            ready[shared[number]].append(number)
    free = {False: places, True: min(places, shared_places)}  # all places, and the scarce ones among them
    running: list[tuple[float, int]] = []
    now = 0.0
    while True:
        while (begun := _next_job(ready, free)) is not None:
            free[False] -= 1
            free[True] -= shared[begun]
            heapq.heappush(running, (now + seconds[begun], begun))
        if not running:
            return now
        now, ended = heapq.heappop(running)
        free[False] += 1
        free[True] += shared[ended]
        for reader in readers[ended]:
            waiting[reader].discard(ended)
            if not waiting[reader]:
                heapq.heappush(ready[shared[reader]], reader)


def _next_job(ready: dict[bool, list[int]], free: dict[bool, int]) -> int | None:
    """Remove and return the first ready job for which a place is free. None if there is none."""
    kinds = [kind for kind in ready if ready[kind] and free[kind]]
    if not kinds or not free[False]:
        return None
    return heapq.heappop(ready[min(kinds, key=lambda kind: ready[kind][0])])
