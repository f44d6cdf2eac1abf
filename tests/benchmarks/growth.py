"""Boxes of the chain over their sizes, with the exponent that each algorithm has, and cases that take turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
from scipy import linalg

from leakbound.channels import Moments, estimate_moments
from leakbound.channels.channel import Spectrum
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SeededNoise
from leakbound.registry import SHAPES
from leakbound_lab.config.defenses import DPSGD
from leakbound_lab.config.federated import FederatedConfig, FederatedRun
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.papers.pmidp.averaging import FederatedRequest, Federation
from leakbound_lab.training.efficiency import clock_of, one_thread
from leakbound_lab.training.opacus_learner import OpacusLearner
from leakbound_lab.training.request import TrainingRequest
from leakbound_lab.training.sgd import StackLearner

Cases = Mapping[str, Callable[[], object]]
_DRAWN = 512  # images with noise, eight batches
_LEAST, _MOST = 3, 101  # turns


@dataclass(frozen=True)
class Box:
    """Work that grows with a size.

    Attributes:
        name: What is done.
        over: What grows.
        work: Size to the work of that size.
        exponent: Power of the size that the algorithm's time grows with; slower growth is overhead that does not grow.
    """

    name: str
    over: str
    work: Mapping[int, Callable[[], object]]
    exponent: float

    def cases(self) -> Cases:
        """The work by the size in words, smallest first."""
        return {f"{size}": work for size, work in self.work.items()}


def in_turns(cases: Cases, seconds: float) -> pd.DataFrame:
    """Seconds of each case in each turn, of this process on one thread.

    Every second turn goes through the cases backwards, so that load on the machine slows all of them alike.

    Args:
        cases: Name to work; the first call of each does not count.
        seconds: Time on the wall after which no turn begins; there are three at least.

    Returns:
        Columns ``case``, ``turn``, ``seconds``.
    """
    rows = []
    began = time.perf_counter()
    with one_thread():
        clock = clock_of("cpu")
        for turn in range(-1, _MOST):
            if turn >= _LEAST and time.perf_counter() - began > seconds:
                break
            order = list(cases.items())
            for name, work in order if turn % 2 == 0 else reversed(order):
                start = clock()
                work()
                if turn >= 0:
                    rows.append((name, turn, clock() - start))
    return pd.DataFrame(rows, columns=["case", "turn", "seconds"])


def slopes(times: pd.DataFrame, sizes: Mapping[str, float]) -> pd.Series[float]:
    """Exponent of each turn: slope of log time over log size.

    Args:
        times: As :func:`in_turns` gives them.
        sizes: Case to its size.
    """
    turns = times.pivot(index="turn", columns="case", values="seconds")[list(sizes)]
    return pd.Series(np.polyfit(np.log(list(sizes.values())), np.log(turns.to_numpy()).T, 1)[0], turns.index)


def boxes(plain: TrainingRequest) -> Iterator[Box]:
    """Each box up to training that has a size: estimate, calibration, channel, noise, training step.

    Sizes of d are up to that of the images, whose covariance falls off with the distance of two values; others do not
    depend on the images.

    Args:
        plain: Undefended training on a CPU, for its images, network and rates; each box changes what it is about.
    """
    plain = replace(plain, device="cpu", replicas=1)
    whole = math.prod(plain.image_shape)
    sizes = tuple(whole * quarters // 4 for quarters in (1, 2, 3, 4))
    moments = {d: moments_like_images(d) for d in sizes}
    natural = SHAPES.get("natural")
    decompositions = {d: partial(natural.decompose, moments[d]) for d in sizes}
    yield Box("calibration", "values of a record", decompositions, 3.0)
    source = SeededNoise(torch_generator(plain.seed, "growth"))
    for name, exponent in (("natural", 1.0), ("white", 2.0)):
        samplers = {d: _sampler(name, moments[d]) for d in sizes}
        draws = {d: partial(own.noise, _DRAWN, source) for d, own in samplers.items()}
        yield Box(f"{name} noise", "values of a record", draws, exponent)
    width = min(whole, 1024)
    records = np.random.default_rng(plain.seed).normal(size=(8 * width, width)).astype(np.float32)
    counts = tuple(len(records) // part for part in (8, 4, 2, 1))
    yield Box("covariance", "records", {n: partial(estimate_moments, [records[:n]]) for n in counts}, 1.0)
    private = replace(plain, defense=DPSGD(), level=1.0)
    learners = {n: OpacusLearner(one := replace(private, batch_size=n), one.slots) for n in (32, 64, 128, 256)}
    yield Box("step of DP-SGD", "records", {n: learner.step for n, learner in learners.items()}, 1.0)
    yield Box("step", "replicas", {count: _steps(plain, count) for count in (1, 2, 4, 8)}, 1.0)
    spectrum = natural.decompose(moments[sizes[1]])
    grids = {count: np.geomspace(1, 500, count) for count in (4, 16, 64)}
    calibrated = {count: partial(_calibrate_all, spectrum, grid) for count, grid in grids.items()}
    yield Box("channels of one spectrum", "levels", calibrated, 1.0)


def moments_like_images(dimension: int) -> Moments:
    """Records whose neighbouring values are alike, as those of images."""
    return Moments(np.zeros(dimension), linalg.toeplitz(0.95 ** np.arange(dimension)), 10 * dimension)


def _sampler(shape: str, moments: Moments) -> ChannelSampler:
    """Noise for records that are one row of values."""
    kind = SHAPES.get(shape)
    channel = kind.calibrate(kind.decompose(moments), 5.0)
    return ChannelSampler(channel, (1, 1, len(moments.mean)), many_draws=True)


def _calibrate_all(spectrum: Spectrum, levels: np.ndarray) -> None:
    """A natural channel of each capacity."""
    shape = SHAPES.get("natural")
    for level in levels:
        shape.calibrate(spectrum, level)


def _steps(plain: TrainingRequest, count: int) -> Callable[[], None]:
    """A step of each replica, one after another, as a CPU trains them."""
    request = replace(plain, replicas=count, config=TrainingConfig(momentum=plain.config.momentum, max_stack=1))
    learners = [StackLearner(request, [slot]) for slot in request.slots]

    def step() -> None:
        for learner in learners:
            learner.step()

    return step


def round_box(plain: TrainingRequest) -> Box:
    """A round of federated averaging under a budget, each client with as many records.

    Args:
        plain: Undefended training on a CPU, for its images and network.
    """
    federations = {count: _federation(replace(plain, device="cpu"), count) for count in (2, 4, 8)}
    return Box("federated round", "clients", {count: one.advance for count, one in federations.items()}, 1.0)


def _federation(plain: TrainingRequest, clients: int) -> Federation:
    """A federation that goes on for longer than it is measured."""
    run = FederatedRun(
        dataset=plain.dataset.name,
        model=plain.model,
        scheme="client",
        n_clients=clients,
        max_param_norm=5.0,
        mi_budget=2000.0,
        budget_spread=None,
    )
    config = FederatedConfig(
        communication_rounds=1000, local_epochs=1, batch_size=32, learning_rate=1e-3, evaluations=2
    )
    records = min(96, plain.dataset.drawing.members // 8)
    request = FederatedRequest(dataset=plain.dataset, run=run, config=config, records=records, seed=plain.seed)
    return Federation(request, 0)
