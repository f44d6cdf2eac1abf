"""Cases of each section of the benchmark: work that is timed, what it is compared with, and what is expected."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice

import numpy as np
import pandas as pd
import torch
from growth import boxes, moments_like_images, round_box
from scipy import linalg
from training_step import requests

from leakbound.channels import Moments
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SecureNoise, SeededNoise
from leakbound.registry import SHAPES
from leakbound_lab import models
from leakbound_lab.attacks.gradient_inversion.closed_form import solved_images
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound_lab.attacks.gradient_inversion.published import reconstruct
from leakbound_lab.attacks.membership.signals import Queries, read_confidences
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.efficiency import BASELINE, measure_steps
from leakbound_lab.training.request import UploadScoring
from leakbound_lab.training.sgd import StackLearner
from leakbound_lab.training.upload_scores import UploadScores, detached_copies

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
    found = requests("lenet", 64, ["natural", "natural_frozen", "white", "personalized", "dpsgd", "dppsac"])
    for name in ("natural", "white", "dpsgd"):
        found[f"{name}, secure"] = dataclasses.replace(found[name], privacy_noise="secure")
    yield _steps("steps", "lenet, batch 64", found, 8)


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


def _channels(dimension: int) -> dict[str, GaussianChannel]:
    """A channel of each built-in shape but the printed one, which costs as much as the personalized one."""
    moments = moments_like_images(dimension)
    names = (name for name in SHAPES.builtin if name != "personalized_printed")
    return {name: _calibrated(name, moments, dimension / 60) for name in names}


def _calibrated(name: str, moments: Moments, capacity: float) -> GaussianChannel:
    """A channel from moments, by weights of its pixels where its shape takes some."""
    shape = SHAPES.get(name)
    weights = np.linspace(1, 9, len(moments.mean)) if name == "personalized" else None
    return shape.calibrate(shape.decompose(moments, weights=weights), capacity)


def calibration(wide: bool) -> Iterator[Found]:
    """Spectrum and channel of each shape over the one LAPACK call that it cannot do without."""
    dimension = 3072 if wide else 1024
    moments = moments_like_images(dimension)
    bare = {"values": lambda: linalg.eigvalsh(moments.covariance), "vectors": lambda: linalg.eigh(moments.covariance)}
    needs = {"natural": "values", "personalized": "values", "white": "vectors", "least_power": "vectors"}
    for call, run in bare.items():
        cases: dict[str, Callable[[], object]] = {f"LAPACK, {call}": run}
        for name in (shape for shape, needed in needs.items() if needed == call):
            cases[name] = partial(_calibrated, name, moments, 50.0)
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
        "published": lambda: reconstruct(matching, labels, start, weights, iterations=few, learning_rate=0.1),
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


def scores(wide: bool) -> Iterator[Found]:
    """Scores of 1,000 candidates from the upload of a step over that step, LeNet without a defense."""
    request = requests("lenet", 64, [])[BASELINE]
    slots = request.slots[:1]
    learner, sender = StackLearner(request, slots), StackLearner(request, slots)
    scoring = UploadScoring(rows={slots[0].replica: range(1000)}, public=1000, window=1)
    received = UploadScores(request, scoring, slots, sender.model, sender.params)
    weights = [detached_copies(sender.params)]
    sender.step()
    uploads = cycle([detached_copies(sender.params), *weights])  # one step, and back
    steps = 10  # moments of public records are estimated anew after as many

    def score() -> None:
        """Score as many uploads."""
        for upload in islice(uploads, steps):
            received.add(upload, last=False)

    def train() -> None:
        """Take as many steps."""
        for _ in range(steps):
            learner.step()

    cases = {"step": train, "scores": score}
    units = dict.fromkeys(cases, float(steps))
    yield Found("scores", "lenet, 1,000 candidates", cases, baseline="step", units=units, goals={"scores": 4.5})


def growth(wide: bool) -> Iterator[Found]:
    """Time of each box of the chain over its sizes, with the exponent that the algorithm has."""
    images = (3, 32, 32) if wide else (1, 32, 32)
    plain = requests("lenet", 64, [], images)[BASELINE]
    for box in chain(boxes(plain), [round_box(plain)]):
        sizes = {f"{size}": float(size) for size in box.work}
        yield Found("growth", f"{box.name} over {box.over}", box.cases(), sizes=sizes, exponent=box.exponent)
