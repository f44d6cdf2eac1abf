"""Cases of the section ``correct``: a GPU against a CPU, with the same noise; resuming; and the GPU's own noise.

Noise is drawn on the CPU for both, so that what is left is arithmetic. Where it turns a unit of a network on or off, or
lets another pixel be the largest of its neighbours, one network of several comes away a hundred times as far as the
others: the median of some networks is judged strictly, the farthest one by what no arithmetic does.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from gpu import LEFT_OUT, OK, WRONG, Asked, Case, Values
from torch import Tensor

from leakbound.channels import estimate_moments, population_moments
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.channels.shapes import box_weights
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound.registry import SHAPES
from leakbound_lab import models
from leakbound_lab.attacks import attack_request, search_images
from leakbound_lab.attacks.attack_request import AttackRequest, Networks
from leakbound_lab.attacks.gradient_inversion import attack as gradient_inversion
from leakbound_lab.attacks.gradient_inversion import several_uses as uses
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound_lab.attacks.gradient_inversion.published import reconstruct
from leakbound_lab.attacks.lower_bounds import dp_audit as uploads
from leakbound_lab.attacks.lower_bounds import identification as naming
from leakbound_lab.attacks.membership import attack as membership
from leakbound_lab.attacks.membership.reference_scores import References
from leakbound_lab.attacks.model_inversion import attack as model_inversion
from leakbound_lab.attacks.model_inversion.queries import invert
from leakbound_lab.config import attacks as settings
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import Defense, default_defenses
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import ImageDataset, prepare
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training import TrainingRequest, per_sample, train
from leakbound_lab.training.client_steps import ClientStep
from leakbound_lab.training.request import UploadScoring, reference_request
from leakbound_lab.training.upload_scores import UploadScores

LEVELS: dict[str, float | None] = {
    "none": None,
    "natural": 50.0,
    "natural_frozen": 50.0,
    "white": 100.0,
    "personalized": 50.0,
    "least_power": 50.0,
    "rate_distortion": 50.0,
    "dpsgd": 0.5,
    "dppsac": 0.5,
    "parameter_noise": 0.01,
    "gradient_compression": 0.1,
    "large_batch": 2.0,
    "compression": 0.0,
}
"""Defense to the level at which it is compared."""
EXACT = TrainingConfig(evaluations=1, precision="float32")
"""A training as a CPU computes it."""
TOLERANCE = 1e-4
"""Relative distance of weights, of a GPU from a CPU, that is arithmetic."""
_OF_WAY = 1e-2  # the same over how far the weights came from their start
_FARTHEST = 1e-3  # relative distance of a network whose units were turned, 1e-4 at most in 520 trainings on a CPU
_NETWORKS = 3  # at least, where each is trained by itself
_NEAR = 0.02  # difference of an attack's values, in units of each metric's own size
_EXACT_DB = 60.0  # squared errors below are of the size of float32's rounding after a search
_EXACT = 1e-9  # relative distance of what is computed in float64
_CHUNK = 2**16  # numbers that are drawn at once
_Z = 5.0  # standard errors; each of a few dozen numbers passes it by luck once in 10⁶ times


class DrawnOnCpu:
    """Source of noise whose numbers are drawn on the CPU, whatever device they are for and however many at a time.

    Args:
        seed: Seed of the configuration.
        words: Run, replica and purpose.
        device: Where numbers are wanted.
    """

    secure = False

    def __init__(self, seed: int, words: Sequence[str | int], device: str | torch.device) -> None:
        self._seed, self._words, self._device = seed, words, torch.device(device)
        self._given = 0  # numbers
        self._chunk: tuple[int, Tensor] | None = None

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers: the next ones of a long row."""
        left, pieces = math.prod(shape), [torch.empty(0)]
        while left:
            place, first = divmod(self._given, _CHUNK)
            if self._chunk is None or self._chunk[0] != place:
                self._chunk = place, noise_source("seeded", self._seed, *self._words, place).normal((_CHUNK,))
            pieces.append(self._chunk[1][first : first + left])
            left, self._given = left - len(pieces[-1]), self._given + len(pieces[-1])
        return torch.cat(pieces).view(tuple(shape)).to(self._device, dtype)

    def uniform(self, count: int) -> Tensor:
        """Uniform numbers in [0, 1)."""
        drawn = noise_source("seeded", self._seed, *self._words, "uniform", self._given).uniform(count)
        self._given += count
        return drawn.to(self._device)

    def state(self) -> Tensor:
        """How many numbers were given."""
        return torch.tensor(self._given)

    def restore(self, state: Tensor | None) -> None:
        """Continue from :meth:`state`."""
        self._given = 0 if state is None else int(state)


def drawn_on_cpu(origin: str, seed: int, *words: str | int, device: str | torch.device = "cpu") -> DrawnOnCpu:
    """In place of :func:`leakbound.randomness.sources.noise_source`."""
    return DrawnOnCpu(seed, words, device)


class RecordByRecord(ChannelSampler):
    """Sampler that draws noise of several parts for one record after another, so that it is the same in any blocks."""

    def stacked_noise(self, count: int, sources: Sequence[NoiseSource]) -> Tensor:
        """Draws (slots, count, d)."""
        if self.channel.gain is None:  # of one part, a row of numbers that can be cut anywhere
            return super().stacked_noise(count, sources)
        return torch.stack([torch.cat([self.noise(1, source) for _ in range(count)]) for source in sources])


@dataclass(frozen=True, kw_only=True)
class ComparedRequest(TrainingRequest):
    """A run whose noise comes from the CPU, through a factor that does not depend on the device."""

    def noise(self, replica: int, purpose: str = "noise", device: str | None = None) -> Any:
        """Source of a replica's noise."""
        words = (self.dataset.name, replica, purpose)
        return drawn_on_cpu(self.privacy_noise, self.seed, *words, device=device or self.device)

    @cached_property
    def client(self) -> ClientStep:
        """Step of the client; a CPU takes a triangular factor where it draws often, with other noise of one law."""
        step = TrainingRequest.client.func(self)  # type: ignore[attr-defined]
        if step.channel is not None:

            def sampler(images: Tensor, source: NoiseSource, *, many_draws: bool = False) -> ChannelSampler:
                return RecordByRecord(step.channel, tuple(images.shape[-3:]), images.device, on_grid=source.secure)

            step._sampler = sampler
        return step


@cache
def digits() -> ImageDataset:
    """Handwriting: real images that need no file."""
    return prepare("digits", DatasetConfig(members=200, validation=100, test=150, aux=400), seed=0)


@cache
def moments() -> Moments:
    """Mean and covariance of auxiliary images."""
    return estimate_moments([digits().aux.images])


@cache
def channel(shape: str, capacity: float) -> GaussianChannel:
    """A channel of the handwriting."""
    found = SHAPES.get(shape)
    weights = box_weights(1, 32, 32, 5.0, rows=(0, 16), columns=(0, 32)) if found.takes_weights else None
    return found.calibrate(found.decompose(moments(), weights=weights), capacity)


def request(name: str, slots: int, device: str, rounds: int = 20, **changes: Any) -> ComparedRequest:
    """A short run under a defense at its level."""
    defense: Defense = default_defenses()[name]
    level, shape = LEVELS[name], getattr(defense, "shape", None)
    values: dict[str, Any] = {
        "dataset": digits(),
        "model": "lenet",
        "defense": defense,
        "level": level,
        "channel": None if shape is None else channel(shape, float(level or 0)),
        "rounds": rounds,
        "batch_size": 32,
        "learning_rates": (0.01,),
        "config": EXACT,
        "seed": 0,
        "slug": f"digits/lenet/{name}",
        "replicas": slots,
        "device": device,
    }
    return ComparedRequest(**{**values, **changes})


def cases(asked: Asked) -> Iterator[Case]:
    """All comparisons, the ones that most depends on first."""
    slots = (1, 3) if asked.quick else (1, 10)
    rounds = 3 if asked.quick else 20
    names = ("none", "natural", "dpsgd") if asked.quick else tuple(LEVELS)
    for name in names:
        for count in slots:
            work = partial(compared_weights, name, count, asked.device, rounds)
            yield Case("weights", f"{name}, K = {count}", lambda _, work=work: work(), weight=count**0.5)
    yield from device_cases(asked, slots, rounds)
    for name in ("natural", "white"):
        yield Case("noise of the device", name, lambda _, name=name: moments_of_noise(name, asked))
    yield Case("resume", "natural", lambda _: resumed(asked.device, rounds + 3))
    for name in ("none", "natural", "dpsgd"):
        yield Case("scores", name, lambda _, name=name: compared_scores(name, asked.device, rounds))
    for name, work in list(attacks(asked).items())[: 3 if asked.quick else None]:
        yield Case("attacks", name, lambda _, work=work: compared_attack(work, asked.device), weight=4.0)


def device_cases(asked: Asked, slots: Sequence[int], rounds: int) -> Iterator[Case]:
    """Comparisons of a device with itself: captured or not, resumed or not, in one precision or another."""
    yield Case("resume", "dpsgd", lambda _: resumed(asked.device, rounds + 3, "dpsgd"))
    for name, count in product(("dpsgd", "dppsac"), slots):
        work = partial(captured_weights, name, count, asked.device, 2 * rounds)
        yield Case("private steps", f"{name}, K = {count}", lambda _, work=work: work())
    for model, name in (("lenet", "none"), ("lenet", "dpsgd"), ("resnet10", "none")):
        work = partial(rounded_weights, model, name, asked.device, rounds)
        yield Case("precision", f"{model}, {name}", lambda _, work=work: work())
    yield Case("searches", "captured", lambda _: captured_searches(asked))
    yield Case("covariance", "float64", lambda _: compared_moments(asked))


def compared_weights(name: str, slots: int, device: str, rounds: int) -> Values:
    """Weights of some networks after some steps on both devices, on the GPU so many side by side."""
    one = EXACT.model_copy(update={"max_stack": 1})
    alone = {"replicas": _NETWORKS, "config": one} if slots == 1 else {}
    asked = {kind: request(name, slots, kind, rounds, **alone) for kind in dict.fromkeys(("cpu", device))}
    found = {kind: train(one).weights for kind, one in asked.items()}
    start = train(replace(asked["cpu"], rounds=0)).weights
    apart, way = _distances(found["cpu"], found[device]), _distances(found["cpu"], start)
    relative = apart / _distances(found["cpu"], {key: 0 * one for key, one in start.items()})
    for metric, value, expected in (
        ("relative_distance", float(relative.median()), TOLERANCE),
        ("of_way", float((apart / way).median()), _OF_WAY),
        ("farthest", float(relative.max()), _FARTHEST),
    ):
        yield {"metric": metric, "value": value, "expected": expected, "status": _said(value <= expected)}


def compared_scores(name: str, device: str, rounds: int) -> Values:
    """Scores of membership from the uploads of two networks, by both devices: how far apart, in standard deviations."""

    def public(scores: UploadScores, purpose: str, number: int = 0) -> Any:
        request = scores._request
        return drawn_on_cpu("", request.seed, purpose, number, device=request.device)

    pool = len(digits().pool.labels)
    scoring = UploadScoring({replica: range(pool) for replica in range(2)}, public=200, window=1, draws=4)
    found = {}
    with mock.patch.object(UploadScores, "_source", public):
        for kind in dict.fromkeys(("cpu", device)):
            found[kind] = train(request(name, 2, kind, rounds, scoring=scoring)).scores
    apart = (found["cpu"] - found[device]).abs().mean(-1) / found["cpu"].std(-1)
    far = float(apart.nan_to_num(nan=math.inf).max())
    yield {"metric": "mean_difference", "value": far, "expected": _NEAR, "status": _said(far <= _NEAR)}


def _distances(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> Tensor:
    """Norms of the difference of all parameters of each network; NaN counts as far."""
    squares = sum((first[name].double() - second[name].double()).square().flatten(1).sum(1) for name in first)
    return torch.as_tensor(squares).sqrt().nan_to_num(nan=math.inf)


def _judged(case: str, apart: float, bound: float) -> dict[str, Any]:
    """Row of a relative distance that a bound judges."""
    said = {"expected": bound, "status": _said(apart <= bound)}
    return {"case": case, "metric": "relative_distance", "value": apart, **said}


def _said(right: bool) -> str:
    """Status of a comparison."""
    return OK if right else WRONG


class _KilledError(Exception):
    """End of a training that goes on later."""


def resumed(device: str, rounds: int, name: str = "natural") -> Values:
    """A training that is killed half-way and goes on, against one that is not."""
    config = EXACT.model_copy(update={"evaluations": 3, "checkpoint_seconds": 0.0})  # at once
    with tempfile.TemporaryDirectory() as folder:
        whole = train(request(name, 2, device, rounds, config=config)).weights
        asked = request(name, 2, device, rounds, config=config, checkpoint=Path(folder, "checkpoint.pt"))

        def kill(rows: pd.DataFrame) -> None:
            if rows["step"].max() >= 2 * rounds // 3:
                raise _KilledError

        with suppress(_KilledError):
            train(replace(asked, on_rows=kill))
        again = train(asked).weights
    relative = _distances(whole, again) / _distances(whole, {key: 0 * one for key, one in whole.items()})
    apart = float(relative.max())
    yield {"metric": "relative_distance", "value": apart, "expected": TOLERANCE, "status": _said(apart <= TOLERANCE)}


def captured_weights(name: str, slots: int, device: str, rounds: int) -> Values:
    """Weights of captured private steps, with the device's own noise, against the same kernels one by one."""
    config = EXACT.model_copy(update={"max_stack": slots})
    asked = TrainingRequest(**vars(request(name, slots, device, rounds, config=config)))
    found = train(asked).weights
    with mock.patch.object(per_sample, "cuda_graph", None):
        plain = train(asked).weights
    way = _distances(plain, train(replace(asked, rounds=0)).weights)
    apart = float((_distances(found, plain) / way).max())
    yield {"metric": "of_way", "value": apart, "expected": TOLERANCE, "status": _said(apart <= TOLERANCE)}


def rounded_weights(model: str, name: str, device: str, rounds: int) -> Values:
    """Weights of a training with rounded products against one in float32, in units of the way."""
    if device != "cuda":
        yield {"metric": "of_way", "status": f"{LEFT_OUT}: no CUDA"}
        return
    asked = request(name, _NETWORKS, device, rounds, model=model)
    plain = train(asked).weights
    way = _distances(plain, train(replace(asked, rounds=0)).weights)
    for precision in ("tf32", "bfloat16"):
        config = EXACT.model_copy(update={"precision": precision})
        apart = float((_distances(train(replace(asked, config=config)).weights, plain) / way).median())
        yield {"case": f"{model}, {name}, {precision}", "metric": "of_way", "value": apart}


def moments_of_noise(name: str, asked: Asked) -> Values:
    """Standard errors by which the device's own noise misses its law, and by which two draws hang together."""
    known, count = channel(name, float(LEVELS[name] or 0)), 512 if asked.quick else 8192
    sampler = ChannelSampler(known, (1, 32, 32), asked.device)
    sources = [noise_source("seeded", 0, "noise", replica, device=asked.device) for replica in range(2)]
    first, second, other = (sampler.noise(count, one).double() for one in (sources[0], sources[0], sources[1]))
    variance = known.variances if known.basis is None else np.square(known.basis) @ known.variances
    scale = torch.from_numpy(np.sqrt(variance)).to(first.device)
    standard, later, apart = (one / scale for one in (first, second, other))
    total = math.sqrt(standard.numel() / _alike(known))
    found = {
        "mean": float(standard.mean()) * total,
        "variance": float((standard.square() - 1).mean()) * total / math.sqrt(2),
        "fourth_moment": float((standard.pow(4) - 3).mean()) * total / math.sqrt(96),
        "next_draw": float((standard * later).mean()) * total,
        "other_replica": float((standard * apart).mean()) * total,
        "neighbours": float((standard[1:] * standard[:-1]).mean()) * total,
    }
    for metric, value in found.items():
        yield {"metric": f"z_{metric}", "value": value, "expected": _Z, "status": _said(abs(value) < _Z)}


def _alike(known: GaussianChannel) -> float:
    """Number of values of a draw for each one that is independent, as sums of squares of correlations count them."""
    if known.basis is None:
        return 1.0
    covariance = (known.basis * known.variances) @ known.basis.T
    scale = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance / np.outer(scale, scale))
    return float(correlation.sum() / len(correlation))


def captured_searches(asked: Asked) -> Values:
    """Images that searches find by captured steps, over what the same kernels find one by one."""
    images = torch.from_numpy(digits().aux.images[:8]).to(asked.device)
    labels = torch.from_numpy(digits().aux.labels[:8]).to(asked.device)
    weights, short = torch.full((8,), 0.01, device=asked.device), 8 if asked.quick else 40
    stacks = {name: value.to(asked.device) for name, value in _trained()[0].items()}
    network = models.build("lenet", 1, 10, torch_generator(0, "searches")).to(asked.device).eval()
    smooth = models.build("lenet_sigmoid", 1, 10, torch_generator(0, "searches")).to(asked.device).eval()
    matching = GradientMatching(smooth, record_gradients(smooth, images, labels), (1, 32, 32))
    told = {"bounds": weights + 1, "learning_rate": 0.1, "moments": [short]}
    given = labels, torch.zeros_like(images), weights
    searches: dict[str, Callable[[], Tensor]] = {
        "model inversion": lambda: invert(network, stacks, *given, **told)[0],
        "gradient matching": lambda: reconstruct(matching, *given, iterations=short, learning_rate=0.1),
    }
    for name, search in searches.items():
        found = search()
        with mock.patch.object(search_images, "cuda_graph", side_effect=RuntimeError("left to its kernels")):
            plain = search()
        apart = float(((found - plain).flatten(1).norm(dim=1) / plain.flatten(1).norm(dim=1)).median())
        yield _judged(f"captured, {name}", apart, _OF_WAY)


def compared_moments(asked: Asked) -> Values:
    """Moments of records on the device against those on a CPU, with more records than values and with fewer."""
    for count, values in ((300, 100), (60, 100)) if asked.quick else ((2000, 600), (400, 600)):
        generator = np.random.default_rng(count)
        records = generator.normal(size=(count, values)) * generator.gamma(1.0, size=values)
        exact, seen = (population_moments(records, device=device) for device in ("cpu", asked.device))
        apart = float(np.abs(exact.covariance - seen.covariance).max() / np.abs(exact.covariance).max())
        yield _judged(f"{count} records of {values} values", apart, _EXACT)


Attacked = tuple[pd.DataFrame, dict[str, np.ndarray]]
Attack = Callable[[str], Attacked]
"""Attack on a device."""


def attacks(asked: Asked) -> dict[str, Attack]:
    """Every attack, on networks that were trained on the CPU, or on none."""
    short = 4 if asked.quick else 100
    inversion = {"images": 2, "tuning_images": 8, "iterations": short, "search_iterations": short // 2}
    search = settings.GradientInversionConfig(**inversion)
    named = settings.NamingConfig(candidates=(2, 5), uses=(1, 2), trials=40, gradients=20, draws=4)
    several, audit = settings.UsesConfig(images=2, uses=(1, 4)), settings.AuditConfig(canaries=100, clients=4)
    inverted, identified = gradient_inversion.invert_gradients, naming.identify_records
    return {
        "membership, references": partial(_membership, settings.MembershipConfig(epochs=5, references=2)),
        "model_inversion": partial(_model_inversion, settings.ModelInversionConfig(iterations=short)),
        "gradient_inversion, sigmoid": partial(_on_uploads, inverted, "lenet_sigmoid", "none", search, 1),
        "gradient_inversion, natural": partial(_on_uploads, inverted, "lenet_sigmoid", "natural", search, 2),
        "gradient_inversion, noise": partial(_on_uploads, inverted, "lenet", "parameter_noise", search, 1),
        "uses": partial(_on_uploads, uses.invert_several_uses, "lenet_sigmoid", "natural", several, 2),
        "naming, natural": partial(_on_uploads, identified, "lenet", "natural", named, 1),
        "naming, dpsgd": partial(_on_uploads, identified, "lenet", "dpsgd", named, 1),
        "audit": partial(_on_uploads, uploads.audit_uploads, "lenet", "dpsgd", audit, 1),
    }


def compared_attack(work: Attack, device: str) -> Values:
    """Largest difference of an attack's mean values on both devices, and of any of its values.

    Searches that go on for many steps part a little, as two orders of the same sum do. Images that are recovered to
    the rounding of float32 differ by that rounding alone, so a PSNR counts up to 60 dB.
    """
    with mock.patch.object(attack_request, "noise_source", drawn_on_cpu):
        exact, seen = work("cpu")[0], work(device)[0]
    keys = ["replica", "variant", "unit", "metric"]
    both = exact.merge(seen, on=keys, suffixes=("", "_seen"))
    decibels = both["metric"] == "psnr"
    for column in ("value", "value_seen"):
        both[column] = both[column].mask(decibels, both[column].clip(upper=_EXACT_DB))
    sizes = both["value"].abs().groupby(both["metric"]).transform("max").clip(lower=1e-3)
    apart = (both["value"] - both["value_seen"]).abs() / sizes
    missing = both["value"].isna() != both["value_seen"].isna()
    means = apart.groupby([both["variant"], both["metric"]]).mean()
    right = len(both) == len(exact) == len(seen) and not missing.any() and bool((means.dropna() < _NEAR).all())
    where = "" if right or not means.notna().any() else f" ({' '.join(means.idxmax())})"
    said = _said(right)
    yield {"metric": f"mean_difference{where}", "value": float(means.max()), "expected": _NEAR, "status": said}
    yield {"metric": "largest_difference", "value": float(apart.max()), "status": ""}
    yield {"metric": "missing", "value": float(missing.sum()), "expected": 0.0, "status": _said(not missing.any())}


@cache
def _trained(count: int = 2) -> tuple[dict[str, Tensor], Networks]:
    """Networks that know their members, and reference networks; both from the CPU."""
    asked = request("none", 2, "cpu", 60, learning_rates=(0.05,))
    target = train(asked)
    others = train(reference_request(asked, count, [0.05]))
    return target.weights, Networks(others.weights, others.rates.assign(chosen=True))


def _shared(device: str, model: str) -> dict[str, Any]:
    """Arguments of every attack."""
    return {"model": model, "dataset": digits(), "seed": 0, "slug": "digits", "device": device}


def _membership(config: settings.MembershipConfig, device: str) -> Attacked:
    weights, others = _trained()
    network = models.build("lenet", 1, 10, torch_generator(0, "references")).to(device).eval()
    known = {"references": References(others, network, digits()), "learning_rates": [0.05, 0.05]}
    return membership.infer_membership(
        AttackRequest(weights=weights, replicas=[0, 1], config=config, **known, **_shared(device, "lenet"))
    )


def _model_inversion(config: settings.ModelInversionConfig, device: str) -> Attacked:
    return model_inversion.invert_models(
        AttackRequest(weights=_trained()[0], replicas=[0, 1], config=config, **_shared(device, "lenet"))
    )


def _on_uploads(
    attack: Callable[[AttackRequest], Attacked], model: str, name: str, config: Any, replicas: int, device: str
) -> Attacked:
    """Rows of an attack on a defense's uploads; several replicas are one stack on a GPU."""
    asked = request(name, 1, "cpu")
    known = {"defense": asked.defense, "level": asked.level, "channel": asked.channel, "moments": moments()}
    return attack(AttackRequest(config=config, replicas=range(replicas), **known, **_shared(device, model)))
