from itertools import pairwise

import numpy as np
import pytest

from leakbound_lab.jobs.job_costs import makespan


def test_a_chain_takes_the_sum_however_many_places_there_are():
    seconds = [3.0, 1.0, 2.0]
    assert makespan(seconds, [[], [0], [1]], [False] * 3, places=5, shared_places=1) == 6.0


def test_equal_jobs_take_turns_in_the_places():
    for places, rounds in ((1, 7), (2, 4), (3, 3), (7, 1), (50, 1)):
        assert makespan([2.0] * 7, [[]] * 7, [False] * 7, places, 1) == 2.0 * rounds


def test_a_job_without_a_scarce_place_goes_past_those_that_wait_for_one():
    seconds, shared = [4.0, 4.0, 1.0, 1.0], [True, True, False, False]
    assert makespan(seconds, [[]] * 4, shared, places=2, shared_places=1) == 8.0
    assert makespan(seconds, [[]] * 4, shared, places=2, shared_places=2) == 5.0


def test_any_jobs_take_between_their_bounds():
    """Graham 1969: at least the work over the places and the longest chain, at most the sum of both."""
    generator = np.random.default_rng(0)
    for _ in range(50):
        count, places = int(generator.integers(1, 30)), int(generator.integers(1, 6))
        seconds = generator.exponential(size=count).tolist()
        needs = [[other for other in range(n) if generator.random() < 0.2] for n in range(count)]
        ends: list[float] = []
        for n, others in enumerate(needs):
            ends.append(seconds[n] + max((ends[other] for other in others), default=0.0))
        chain, work = max(ends), sum(seconds) / places
        found = makespan(seconds, needs, [False] * count, places, 1)
        assert max(chain, work) - 1e-9 <= found <= chain + work + 1e-9
    more = [makespan(seconds, [[]] * count, [False] * count, places, 1) for places in (1, 2, 4, 8)]
    assert all(fewer >= many for fewer, many in pairwise(more))
    assert more[0] == pytest.approx(sum(seconds))
