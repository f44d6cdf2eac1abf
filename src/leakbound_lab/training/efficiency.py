"""Times of training steps under a defense, compared with plain SGD in turns within one process.

Each repetition gives every defense a turn, so that a machine that slows down slows all of them. The ratio to
SGD is computed within a repetition.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import pandas as pd
import torch

from leakbound_lab.config.catalogue import STUDY_COLUMNS
from leakbound_lab.config.defenses import NOISE_BATCHES
from leakbound_lab.config.studies import EfficiencyConfig
from leakbound_lab.models import memory
from leakbound_lab.training.correlated import CorrelatedLearner
from leakbound_lab.training.loop import Learner
from leakbound_lab.training.opacus_learner import OpacusLearner
from leakbound_lab.training.per_sample import PrivateStackLearner
from leakbound_lab.training.request import TrainingRequest
from leakbound_lab.training.sgd import StackLearner
from leakbound_lab.training.stack import full_precision
from leakbound_lab.training.trainers import check_request

BASELINE = "none"
"""The defense that all times are compared with."""
TIME_COLUMNS = [column for column in STUDY_COLUMNS if column != "length"]
"""Columns of the table of training times."""


def measure_steps(
    requests: Mapping[str, TrainingRequest], *, steps: int, repeats: int, max_seconds: float = math.inf
) -> pd.DataFrame:
    """Time training steps of several defenses in turns.

    The learners are those of training. Every defense first has a turn that does not count. Each second
    repetition goes through the defenses in reverse order. All replicas of a request take the step, as one
    stack, or one by one under DP on a CPU, as in the training of large networks. A CPU uses one thread
    meanwhile.

    Args:
        requests: Name of each defense to its run. ``rounds`` is not used.
        steps: Steps in a turn, a multiple of ``NOISE_BATCHES``. Noise is drawn for so many batches at once
            and would otherwise fall into some turns only.
        repeats: Number of turns of each defense that count.
        max_seconds: Seconds after which a turn ends, at a multiple of ``NOISE_BATCHES`` steps, or at any step
            under DP.

    Returns:
        Columns ``defense``, ``repetition``, ``seconds`` of one step of all replicas.

    Raises:
        UntrainableError: If a defense cannot train its network.
    """
    # All defenses are refused or made before the first is measured.
    for request in requests.values():
        check_request(request)
    learners = {name: _learner(request) for name, request in requests.items()}
    rows = []
    with one_thread():
        # Turns back and forth, so that a machine that slows down steadily favours none. The first warms up.
        for repetition in range(-1, repeats):
            order = list(learners.items())
            for name, learner in order if repetition % 2 == 0 else reversed(order):
                one_by_one = isinstance(learner, OpacusLearner)
                device = torch.device(requests[name].device)
                serial = requests[name].replicas if one_by_one else 1
                # On a GPU whole blocks of noise, and few questions of the time, each of which waits for the GPU.
                block = memory.NOISE_STEPS.on(device) or (1 if one_by_one else NOISE_BATCHES)
                with full_precision(device):
                    seconds = serial * _turn(learner, clock_of(str(device)), steps, block, max_seconds)
                if repetition >= 0:
                    rows.append((name, repetition, seconds))
    return pd.DataFrame(rows, columns=["defense", "repetition", "seconds"])


def _learner(request: TrainingRequest) -> Learner:
    """Make the learner of all replicas of a run, or of one replica if they are trained one by one."""
    if not request.defense.independent_steps:
        return CorrelatedLearner(request, request.slots)
    if not request.defense.clips:
        return StackLearner(request, request.slots)
    if torch.device(request.device).type == "cpu":
        return OpacusLearner(request, request.slots[:1])
    return PrivateStackLearner(request, request.slots)


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread for work on the CPU, and restore the number of threads at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _turn(learner: Learner, clock: Callable[[], float], steps: int, block: int, max_seconds: float) -> float:
    """Measure the mean seconds of a step, over whole blocks of steps.

    Only the two ends wait for a GPU, because waiting after each block would count as time of the steps. On a
    GPU the time limit is therefore checked against the host, which is some steps ahead.
    """
    host_clock = clock if clock is time.process_time else time.perf_counter
    began = clock()
    host_began = host_clock()
    done = 0
    while done < steps and (done == 0 or max_seconds == math.inf or host_clock() - host_began < max_seconds):
        for _ in range(block):
            learner.step()
        done += block
    return (clock() - began) / done


def clock_of(device: str) -> Callable[[], float]:
    """Return the clock for the seconds of work on a device.

    On a CPU with one thread it is the CPU time of this process, which other processes of a busy machine do
    not change. Otherwise it is wall time, on a GPU after all its work is done.
    """
    if torch.device(device).type == "cuda":

        def synchronized() -> float:
            """Return the time when the GPU is done."""
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return synchronized
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def efficiency_rows(times: pd.DataFrame, config: EfficiencyConfig) -> pd.DataFrame:
    """Return tidy rows of measured times.

    Args:
        times: Columns ``model``, ``defense``, ``level`` (NaN for none), ``repetition``, ``seconds`` of one
            step.
        config: Batch size, and the number of epochs that times are stated for.

    Returns:
        Columns of a study's table. The replica is the repetition. Metrics: ``seconds_per_step``, ``seconds``
        of all epochs, and ``ratio`` to SGD in the same repetition.

    Raises:
        ValueError: If a model lacks the times of plain SGD.
    """
    # Times of plain SGD in the same repetition, which each time is divided by.
    rounds = config.epochs * config.records / config.batch_size
    plain = times[times["defense"] == BASELINE].set_index(["model", "repetition"])["seconds"]
    reference = plain.reindex(pd.MultiIndex.from_frame(times[["model", "repetition"]])).to_numpy()
    if np.isnan(reference).any():
        missing = sorted(set(times["model"][np.isnan(reference)]))
        raise ValueError(
            f"{missing} lack the times of {BASELINE!r}, which others are compared with; measure it too"
        )
    # One table for each metric, in the columns that all studies share.
    seconds = times["seconds"].to_numpy()
    values = {"seconds_per_step": seconds, "seconds": rounds * seconds, "ratio": seconds / reference}
    levels = ["" if math.isnan(level) else f"-{level:g}" for level in times["level"]]
    shared = times.rename(columns={"repetition": "replica"}).assign(
        run=config.dataset + "/" + times["model"] + "/" + times["defense"] + levels,
        dataset=config.dataset,
        level=times["level"].astype(float),
        rounds=round(rounds),
        batch_size=config.batch_size,
        learning_rate=math.nan,
        chosen=True,
        source="efficiency",
        variant="step",
        unit=-1,
        low=math.nan,
        high=math.nan,
        status="",
    )
    table = pd.concat([shared.assign(metric=metric, value=value) for metric, value in values.items()])
    order = ["dataset", "model", "defense", "level", "metric", "replica"]
    return table.sort_values(order, ignore_index=True)[TIME_COLUMNS]
