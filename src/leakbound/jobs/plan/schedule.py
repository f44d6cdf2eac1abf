"""Time that jobs take side by side, each begun once what it waits for is done and a place is free."""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence


def makespan(
    seconds: Sequence[float], needs: Sequence[Collection[int]], shared: Sequence[bool], places: int, shared_places: int
) -> float:
    """Time until the last job is done; of those that could begin, the first of the list does.

    Args:
        seconds: Time of each job.
        needs: Numbers of the jobs that each waits for, without circles.
        shared: True for each job that takes one of the scarce places too, such as a share of a GPU.
        places: Jobs side by side.
        shared_places: Of these, jobs with a scarce place.
    """
    left = [set(ones) for ones in needs]
    readers: dict[int, list[int]] = defaultdict(list)
    for number, ones in enumerate(left):
        for other in ones:
            readers[other].append(number)
    ready: dict[bool, list[int]] = {False: [], True: []}  # by whether they need a scarce place
    for number, ones in enumerate(left):
        if not ones:
            heapq.heappush(ready[shared[number]], number)
    free, scarce, now = places, min(places, shared_places), 0.0
    running: list[tuple[float, int]] = []
    while running or ready[False] or ready[True]:
        while free and (able := [kind for kind in ready if ready[kind] and (scarce or not kind)]):
            number = heapq.heappop(ready[min(able, key=lambda kind: ready[kind][0])])
            free, scarce = free - 1, scarce - shared[number]
            heapq.heappush(running, (now + seconds[number], number))
        now, number = heapq.heappop(running)
        free, scarce = free + 1, scarce + shared[number]
        for reader in readers[number]:
            left[reader].discard(number)
            if not left[reader]:
                heapq.heappush(ready[shared[reader]], reader)
    return now
