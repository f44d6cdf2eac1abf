"""Cases of each section of the benchmark: work that is timed, what it is compared with, and what is expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from scipy import linalg
from training_step import requests

from leakbound import models
from leakbound.attacks.geiping import invert
from leakbound.attacks.matching import GradientMatching
from leakbound.attacks.recursive import solved_images
from leakbound.attacks.signals import Queries, read_confidences
from leakbound.channels import Moments, estimate_moments
from leakbound.channels.channel import Channel
from leakbound.channels.sampling import ChannelSampler
from leakbound.config.attacks import GradientInversionConfig
from leakbound.config.federated import FederatedConfig
from leakbound.config.training import TrainingConfig
from leakbound.datasets import ImageDataset
from leakbound.federated.averaging import FederatedRequest, Federation
from leakbound.jobs.federated import FederatedRun
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SecureNoise, SeededNoise
from leakbound.registry import SHAPES
from leakbound.training.client_steps import record_gradients
from leakbound.training.efficiency import BASELINE, measure_steps
from leakbound.training.loop import StackLearner
from leakbound.training.per_sample import PerSampleLearner
from leakbound.training.request import TrainingRequest

GOALS = {"natural": 1.05, "personalized": 1.05, "natural_frozen": 1.0, "white": 1.4, "natural, secure": 1.15}
GOALS |= {"dpsgd": 1.8, "dppsac": 1.8}
SHAPE = {256: (1, 16, 16), 512: (2, 16, 16), 1024: (1, 32, 32), 2048: (2, 32, 32), 3072: (3, 32, 32)}
"""Number of values to an image's shape."""


@dataclass(frozen=True)
class Found:
    """One group of cases that are timed in turns.

    Attributes:
        section: Section.
        group: What they have in common.
        cases: Name to work.
        baseline: The case that others are compared with.
        units: Case to the units of work in it, by which its time is divided; 1 where it is missing.
        sizes: Case to its size, for an exponent of growth.
        exponent: The one that the algorithm has.
        goals: Case to the ratio that it should not exceed.
        measure: Takes the times by itself, in the given seconds.
    """

    section: str
    group: str
    cases: Mapping[str, Callable[[], object]] = field(default_factory=dict)
    baseline: str | None = None
    units: Mapping[str, float] = field(default_factory=dict)
    sizes: Mapping[str, float] = field(default_factory=dict)
    exponent: float | None = None
    goals: Mapping[str, float] = field(default_factory=dict)
    measure: Callable[[float], pd.DataFrame] | None = None


def steps(wide: bool) -> Iterator[Found]:
    """Training steps of LeNet over plain SGD."""
    found = requests("lenet", 64, ["natural", "natural_frozen", "white", "dpsgd", "dppsac"])
    found["personalized"] = _personalized(found["natural"])
    for name in ("natural", "white", "dpsgd"):
        found[f"{name}, secure"] = dataclasses.replace(found[name], privacy_noise="secure")
    yield _steps("steps", "lenet, batch 64", found, 8)


def _personalized(natural: TrainingRequest) -> TrainingRequest:
    """The request of a channel with weights."""
    variances = np.linspace(0.02, 0.06, natural.channel.dimension)
    channel = Channel("personalized", natural.channel.capacity, variances)
    return dataclasses.replace(
        natural, channel=channel, defense=natural.defense.model_copy(update={"shape": "personalized"})
    )


def large_steps(wide: bool) -> Iterator[Found]:
    """Training steps of the larger networks over plain SGD, on a few records."""
    for model, batch in (("resnet10", 4), ("alexnet", 4)) if wide else (("resnet10", 2),):
        yield _steps("large steps", f"{model}, batch {batch}", requests(model, batch, ["natural", "white", "dpsgd"]), 8)


def _steps(section: str, group: str, found: Mapping, count: int) -> Found:
    """Steps of some requests, timed by the module that studies use."""

    def measure(seconds: float) -> pd.DataFrame:
        """As many turns as fit, from the time that the first two take."""
        began = pd.Timestamp.now()
        pieces = [measure_steps(found, steps=count, repeats=1)]
        once = (pd.Timestamp.now() - began).total_seconds() / 2
        pieces.append(measure_steps(found, steps=count, repeats=max(2, int(seconds / once) - 3)))
        times = pieces[1].rename(columns={"defense": "case", "repetition": "turn"})
        return times[["case", "turn", "seconds"]]

    return Found(section, group, baseline=BASELINE, goals=GOALS if section == "steps" else {}, measure=measure)


def noise(wide: bool) -> Iterator[Found]:
    """Noise for 512 images, eight batches, over that along pixels: shape, precision and form of the factor."""
    dimension = 3072 if wide else 1024
    channels = _channels(dimension)
    seeded, secure = SeededNoise(torch_generator(0, "bench")), SecureNoise()
    cases: dict[str, Callable[[], object]] = {}
    for name, channel in channels.items():
        for precision, source in (("float32", seeded), ("grid", secure)):
            for many in (False, True) if channel.basis is not None else (True,):
                sampler = ChannelSampler(channel, SHAPE[dimension], on_grid=source.secure, many_draws=many)
                label = f"{name}, {precision}" + ("" if many else ", square factor")
                cases[label] = lambda sampler=sampler, source=source: sampler.noise(512, source)
    factor = torch.randn(dimension, dimension)
    small, half = factor.bfloat16(), torch.randn(512, dimension).bfloat16()
    whole = half.float()
    cases["bare product, float32"] = lambda: whole @ factor
    cases["bare product, bfloat16"] = lambda: half @ small
    yield Found("noise", f"512 × {dimension}", cases, baseline="natural, float32", units=dict.fromkeys(cases, 8.0))


def _moments(dimension: int) -> Moments:
    """Records whose neighbouring values are alike, as those of images."""
    return Moments(np.zeros(dimension), linalg.toeplitz(0.95 ** np.arange(dimension)), 10 * dimension)


def _channels(dimension: int) -> dict[str, Channel]:
    """A channel of each built-in shape but the printed one, which costs as much as the personalized one."""
    moments = _moments(dimension)
    found = {}
    for name in SHAPES.builtin:
        if name != "personalized_printed":
            weights = np.linspace(1, 9, dimension) if name == "personalized" else None
            shape = SHAPES.get(name)
            found[name] = shape.calibrate(shape.decompose(moments, weights=weights), dimension / 60)
    return found


def calibration(wide: bool) -> Iterator[Found]:
    """Spectrum and channel of each shape over the one LAPACK call that it cannot do without."""
    dimension = 3072 if wide else 1024
    moments = _moments(dimension)
    bare = {"values": lambda: linalg.eigvalsh(moments.covariance), "vectors": lambda: linalg.eigh(moments.covariance)}
    needs = {"natural": "values", "personalized": "values", "white": "vectors", "least_power": "vectors"}
    for call, run in bare.items():
        cases: dict[str, Callable[[], object]] = {f"LAPACK, {call}": run}
        for name in (shape for shape, needed in needs.items() if needed == call):
            weights = np.linspace(1, 9, dimension) if name == "personalized" else None

            def calibrated(name: str = name, weights: np.ndarray | None = weights) -> Channel:
                """A channel from moments."""
                return SHAPES.get(name).calibrate(SHAPES.get(name).decompose(moments, weights=weights), 50.0)

            cases[name] = calibrated
        yield Found("calibration", f"d = {dimension}, {call}", cases, baseline=f"LAPACK, {call}")


def inversion(wide: bool) -> Iterator[Found]:
    """One image from its gradient: solved for, and by the published optimiser at its number of iterations."""
    network = models.build("lenet_sigmoid", 3, 10, torch_generator(0, "bench")).eval()
    count, few = 8, 10
    images, labels = torch.rand(count, 3, 32, 32) * 2 - 1, torch.arange(count)
    gradients = record_gradients(network, images, labels)
    matching = GradientMatching(network, gradients, (3, 32, 32))
    start, weights = torch.zeros_like(images), torch.full((count,), 1e-2)
    full = GradientInversionConfig().iterations
    cases = {
        "published": lambda: invert(matching, labels, start, weights, iterations=few, learning_rate=0.1),
        "recursive": lambda: solved_images(network, gradients, (3, 32, 32)),
    }
    units = {"published": count * few / full, "recursive": float(count)}
    yield Found("inversion", "sigmoid LeNet, one image", cases, baseline="published", units=units)


def references(wide: bool) -> Iterator[Found]:
    """Answers of one reference network for 2,000 records, and one forward pass without more."""
    network = models.build("lenet", 3, 10, torch_generator(0, "bench")).eval()
    images, queries = torch.rand(2000, 3, 32, 32) * 2 - 1, Queries()

    @torch.no_grad()
    def passes() -> object:
        """Logits."""
        return [network(some) for some in images.split(500)]

    cases = {"forward pass": passes, "confidences": lambda: read_confidences(network, images, queries)}
    yield Found("references", "lenet, 2,000 records", cases, baseline="forward pass")


def growth(wide: bool) -> Iterator[Found]:
    """Time over size, with the exponent that the algorithm has."""
    dimensions = (512, 1024, 2048, 3072) if wide else (256, 512, 1024)
    moments = {dimension: _moments(dimension) for dimension in dimensions}
    natural = SHAPES.get("natural")
    yield _grown("calibration over d", dimensions, lambda d: lambda: natural.decompose(moments[d]), 3)
    source = SeededNoise(torch_generator(0, "bench"))
    for name, exponent in (("natural", 1), ("white", 2)):
        shape = SHAPES.get(name)
        samplers = {
            d: ChannelSampler(shape.calibrate(shape.decompose(moments[d]), 5.0), SHAPE[d], many_draws=True)
            for d in dimensions
        }
        yield _grown(
            f"{name} noise over d", dimensions, lambda d, own=samplers: lambda: own[d].noise(512, source), exponent
        )
    records = np.random.default_rng(0).normal(size=(8000 if wide else 2000, 1024)).astype(np.float32)
    sizes = tuple(len(records) // part for part in (8, 4, 2, 1))
    yield _grown("moments over records", sizes, lambda n: lambda: estimate_moments([records[:n]]), 1)
    private = requests("lenet", 64, ["dpsgd"])["dpsgd"]
    learners = {
        n: PerSampleLearner(dataclasses.replace(private, batch_size=n), private.slots) for n in (32, 64, 128, 256)
    }
    yield _grown("DP-SGD step over records", tuple(learners), lambda n: learners[n].step, 1)
    plain = requests("lenet", 64, [])[BASELINE]
    stacks = {}
    for count in (1, 2, 4, 8):
        request = dataclasses.replace(plain, replicas=count, config=TrainingConfig(max_stack=1))
        stacks[count] = [StackLearner(request, [slot]) for slot in request.slots]
    yield _grown("steps over replicas", tuple(stacks), lambda n: lambda: [learner.step() for learner in stacks[n]], 1)
    spectrum = natural.decompose(moments[dimensions[1]])
    yield _grown(
        "channels over levels",
        (4, 16, 64),
        lambda n: lambda: [natural.calibrate(spectrum, level) for level in np.geomspace(1, 500, n)],
        1,
    )
    federations = {count: _federation(plain.dataset, count) for count in (2, 4, 8)}
    yield _grown("rounds over clients", tuple(federations), lambda n: federations[n].advance, 1)


def _grown(group: str, sizes: tuple[int, ...], work: Callable[[int], Callable[[], object]], exponent: float) -> Found:
    """Cases of several sizes."""
    cases = {f"{size}": work(size) for size in sizes}
    return Found("growth", group, cases, sizes={f"{size}": float(size) for size in sizes}, exponent=exponent)


def _federation(dataset: ImageDataset, clients: int) -> Federation:
    """A federation that goes on for longer than it is measured, each client with as many records."""
    run = FederatedRun(
        dataset.name, "lenet", "client", n_clients=clients, max_param_norm=5.0, mi_budget=2000.0, budget_spread=None
    )
    config = FederatedConfig(
        communication_rounds=1000, local_epochs=1, batch_size=32, learning_rate=1e-3, evaluations=2
    )
    return Federation(FederatedRequest(dataset=dataset, run=run, config=config, records=96, seed=0), 0)
