"""Cases of the section ``fast``: what a step of K networks takes as one stack, one by one, and one by one captured.

Ways take turns, so that all of them meet the same device. A turn is timed by events of the device, from the beginning
of its first step to the end of its last; what the host takes to ask for them is measured beside it. Values are medians
over turns with quartiles; a ratio is taken within a turn.

Baselines are loops over single networks as one writes them by hand, with batches that are on the device already:
``one by one`` asks for each operation of each network, ``one by one, captured`` replays a CUDA graph of the whole step.
Of both, one network is timed, and counted K times.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from gpu import LEFT_OUT, Asked, Case, Values
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from training_step import quartiles, requests

from leakbound.channels import population_moments
from leakbound.randomness.seeding import torch_generator
from leakbound.registry import load_attribute
from leakbound_lab import models
from leakbound_lab.attacks import search_images
from leakbound_lab.attacks.attack_request import AttackRequest
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound_lab.attacks.gradient_inversion.published import PublishedReconstruction, inverted, reconstruct
from leakbound_lab.attacks.model_inversion.attack import invert_models
from leakbound_lab.attacks.model_inversion.queries import invert
from leakbound_lab.config.attacks import GradientInversionConfig, ModelInversionConfig
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training import TrainingRequest, per_sample, sgd, stack
from leakbound_lab.training.loop import Learner
from leakbound_lab.training.request import initial_network
from leakbound_lab.training.stack import cuda_graph

BATCH = 64
STACKS = (1, 2, 5, 10, 20, 40)
LARGE = ("resnet10", "alexnet", "vgg16")
ONE, CAPTURED, STACK = "one by one", "one by one, captured", "stack"
"""Ways of a step of K networks: two baselines, and what training does."""
EAGER = "stack, kernel by kernel"
"""The last of these with nothing recorded."""
CAPTURED_SEARCH, EAGER_SEARCH = "captured", "kernel by kernel"
"""Ways of a search."""
_LEAST, _MOST, _WARM = 3, 41, 3  # turns; and steps before the first
_SHORTEST = 0.02  # seconds of a turn

Step = Callable[[], object]


def cases(asked: Asked) -> Iterator[Case]:
    """All measurements; of what the goals are stated for first."""
    model, batch = ("small", 8) if asked.quick else ("lenet", BATCH)
    counts = (1, 2) if asked.quick else STACKS
    make = partial(request, model, batch, asked.device)
    yield from ported(asked)
    for count in counts:
        yield Case(f"{model}, B = {batch}", f"K = {count}", partial(ways, make("none", count)), weight=2.0)
    for count in (1, counts[-1]) if asked.quick else (1, 10):
        names = ("natural", "dpsgd") if asked.quick else ("natural", "natural_frozen", "white", "dpsgd", "dppsac")
        found = {name: make(name, count) for name in ("none", *names)}
        yield Case(
            f"{model}, B = {batch}", f"K = {count}, defenses", partial(defenses, found, f"K = {count}"), weight=3.0
        )
    large = () if asked.quick else (("resnet10", 1),)
    for name, count in ((model, 1), (model, counts[1] if asked.quick else 10), *large):
        precision = "tf32" if name == "resnet10" else "float32"
        runs = {one: request(name, batch, asked.device, one, count) for one in ("none", "dpsgd", "dppsac")}
        found = {one: rounded(run, precision) for one, run in runs.items()}
        title = f"{name}, K = {count}"
        yield Case("private steps", title, partial(defenses, found, title), weight=2.0)
    for name in LARGE if asked.device == "cuda" else ():
        yield Case("precision", name, partial(precisions, name, asked.device), weight=2.0)
    for name in () if asked.quick else LARGE:
        wide = {one: request(name, BATCH, asked.device, one, 1) for one in ("none", "natural", "dpsgd")}
        yield Case(f"{name}, B = {BATCH}", "K = 1, defenses", partial(defenses, wide, "K = 1"), weight=2.0)
        two = request(name, BATCH, asked.device, "none", 10)
        yield Case(f"{name}, B = {BATCH}", "K = 10", partial(ways, two), weight=2.0)
    for count in (1, 2) if asked.quick else (1, 30):
        work = partial(inversion, count, asked)
        yield Case("gradient inversion", f"{count} images", work)
    count = 2 if asked.quick else 10
    yield Case("gradient inversion", f"K = {count}", partial(inversions, count, asked))


def ported(asked: Asked) -> Iterator[Case]:
    """What takes longest beside trainings: model inversion, and the covariance of a dataset."""
    for model, count in (("mlp", 2),) if asked.quick else (("lenet", 10), ("resnet10", 3)):
        work = partial(model_inversions, model, count, asked)
        yield Case("model inversion", f"{model}, K = {count}", work, weight=3.0)
    yield Case("covariance", "float64", partial(covariances, asked), weight=2.0)


def request(model: str, batch: int, device: str, defense: str, count: int) -> TrainingRequest:
    """A run of ``count`` replicas on random images."""
    asked = requests("lenet", batch, [defense])[defense]
    # On a CPU a stack would be what fits its cache, and loops written by hand are in float32.
    config = asked.config.model_copy(update={"max_stack": count, "precision": "float32"})
    return replace(asked, model={"small": "mlp"}.get(model, model), replicas=count, device=device, config=config)


def ways(asked: TrainingRequest, seconds: float) -> Values:
    """All ways of a step of K networks, and how many kernels the stack asks for."""
    count, device = asked.replicas, asked.device
    learners = learners_of(asked)
    steps: dict[str, Step] = {STACK: partial(_each, [learner.step for learner in learners])}
    steps[ONE] = plain(replace(asked, replicas=1))
    if device == "cuda":
        steps[CAPTURED] = captured(replace(asked, replicas=1))
        with mock.patch.object(sgd, "cuda_graph", None):  # what records a stack's step
            steps[EAGER] = partial(_each, [learner.step for learner in learners_of(asked)])
    else:
        yield {"metric": "ms", "case": f"K = {count}, {CAPTURED}", "status": f"{LEFT_OUT}: no CUDA"}
    times = {ONE: float(count), CAPTURED: float(count)}
    yield from timed(steps, device, seconds, times, STACK, f"K = {count}")
    yield {"metric": "operations", "value": float(operations(steps[STACK]))}
    if device == "cuda":
        yield {"metric": "peak_mib", "value": torch.cuda.max_memory_allocated() / 2**20}
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.empty_cache()


def rounded(asked: TrainingRequest, precision: str) -> TrainingRequest:
    """The same run in another precision."""
    return replace(asked, config=asked.config.model_copy(update={"precision": precision}))


def defenses(found: Mapping[str, TrainingRequest], group: str, seconds: float) -> Values:
    """Steps of defenses, those of DP captured and kernel by kernel, against one without a defense."""
    steps: dict[str, Step] = {}
    for name, asked in found.items():
        steps[name] = partial(_each, [learner.step for learner in learners_of(asked)])
        if name.startswith("dp") and asked.device == "cuda":
            with mock.patch.object(per_sample, "cuda_graph", None):
                steps[f"{name}, kernel by kernel"] = partial(_each, [one.step for one in learners_of(asked)])
    yield from timed(steps, found["none"].device, seconds, {}, "none", group, inverse=True)


def precisions(model: str, device: str, seconds: float) -> Values:
    """Steps of one large network in each precision, against float32."""
    steps: dict[str, Step] = {}
    network = initial_network(request(model, BATCH, device, "none", 1), 0)  # which takes seconds for VGG16
    for precision in ("float32", "tf32", "bfloat16"):
        with mock.patch.object(sgd, "initial_network", side_effect=lambda *_: deepcopy(network)):
            (learner,) = learners_of(rounded(request(model, BATCH, device, "none", 1), precision))
        steps[precision] = learner.step
    yield from timed(steps, device, seconds, {}, "float32", model, inverse=True)
    torch.cuda.empty_cache()


class _ChosenError(Exception):
    """End of a training that is about to begin."""


def learners_of(asked: TrainingRequest) -> list[Learner]:
    """Learners of all replicas as the defense's trainer makes them, in stacks as large as it chooses."""

    def stop(request: TrainingRequest, learner: Any, size: int) -> None:
        raise _ChosenError(learner, size)

    with mock.patch.object(per_sample, "train_slots", stop), mock.patch.object(sgd, "train_slots", stop):
        try:
            load_attribute(asked.defense.trainer, "trainer")(asked)
        except _ChosenError as chosen:
            learner, size = chosen.args
    return [learner(asked, asked.slots[first : first + size]) for first in range(0, len(asked.slots), size)]


def _each(steps: list[Step]) -> None:
    """All steps, one after another."""
    for step in steps:
        step()


def timed(
    steps: Mapping[str, Step],
    device: str,
    seconds: float,
    times: Mapping[str, float],
    baseline: str,
    group: str,
    *,
    inverse: bool = False,
) -> Values:
    """Milliseconds of a step in each way, what the host takes of it, and the ratio to or of the baseline.

    Args:
        steps: Way to one step.
        device: Where.
        seconds: For all of it.
        times: Way to the number of such steps that make one of K networks; 1 where it is missing.
        baseline: The way that others are compared with: they over it, or with ``inverse`` as well.
        group: Beginning of the names of the rows.
        inverse: Whether rows are called ``ratio`` (over the baseline) instead of ``speedup`` (of the baseline).
    """
    began = time.perf_counter()
    once = {}
    for name, step in steps.items():
        for _ in range(_WARM):
            step()
        _turn(step, 1, device)
        once[name] = max(1e-6, _turn(step, 2, device)[0] / 2)
    counts = {name: max(2, round(_SHORTEST / one)) for name, one in once.items()}
    turns: list[dict[str, tuple[float, float]]] = []
    while len(turns) < _MOST and (len(turns) < _LEAST or time.perf_counter() - began < seconds):
        order = list(steps) if len(turns) % 2 else list(reversed(steps))
        found = {name: _turn(steps[name], counts[name], device) for name in order}
        turns.append({name: (whole / counts[name], host / counts[name]) for name, (whole, host) in found.items()})
    for name in steps:
        factor = times.get(name, 1.0)
        wall, host = (np.array([turn[name][place] for turn in turns]) * factor for place in (0, 1))
        case = f"{group}, {name}"
        yield {"case": case, "metric": "ms", **quartiles(1e3 * wall)}
        yield {"case": case, "metric": "host_ms", **quartiles(1e3 * host)}
        if name != baseline:
            base = np.array([turn[baseline][0] for turn in turns]) * times.get(baseline, 1.0)
            yield {"case": case, "metric": "ratio" if inverse else "speedup", **quartiles(wall / base)}


def _turn(step: Step, count: int, device: str) -> tuple[float, float]:
    """Seconds of some steps: until the device is done, and until the host has asked for all."""
    if device != "cuda":
        began = time.perf_counter()
        for _ in range(count):
            step()
        return (passed := time.perf_counter() - began), passed
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    began = time.perf_counter()
    for _ in range(count):
        step()
    asked = time.perf_counter() - began
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1e3, asked


def _done(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def plain(asked: TrainingRequest) -> Step:
    """A step of one network as one writes it by hand."""
    once, rows = _by_hand(asked)
    turns = cycle(rows)
    return lambda: once(next(turns))


def captured(asked: TrainingRequest) -> Step:
    """The same step as a CUDA graph, which is told the records of each step by one copy."""
    once, rows = _by_hand(asked)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARM):
            once(rows[0])
    torch.cuda.current_stream().wait_stream(side)
    replay, turns = cuda_graph(once, [rows[0]]), cycle(rows)
    return lambda: replay(next(turns))


def _by_hand(asked: TrainingRequest) -> tuple[Callable[[Tensor], None], Tensor]:
    """A step of one network on some of its records, and the rows of 64 steps, all on the device."""
    network = initial_network(asked, 0).to(asked.device)
    optimizer = torch.optim.SGD(network.parameters(), asked.candidates[0], asked.config.momentum, fused=True)
    members = asked.dataset.members(0)
    images, labels = (torch.from_numpy(one).to(asked.device) for one in (members.images, members.labels))
    rows = torch.randint(len(labels), (64, asked.batch_size), generator=torch_generator(0, "rows"))

    def once(chosen: Tensor) -> None:
        """One step."""
        optimizer.zero_grad()
        F.cross_entropy(network(images.index_select(0, chosen)), labels.index_select(0, chosen)).backward()
        optimizer.step()

    return once, rows.to(asked.device)


class _Counted(TorchDispatchMode):
    """Counts operations that compute something: on a GPU each is a kernel, or a few."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        views = any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns)
        self.count += not views and not func._schema.name.startswith(
            ("aten::empty", "aten::detach", "aten::_unsafe_view")
        )
        return func(*args, **(kwargs or {}))


def operations(step: Step, steps: int = 8) -> float:
    """Operations of a step that are asked for one by one; a replayed graph has none."""
    with _Counted() as counted:
        for _ in range(steps):
            step()
    return counted.count / steps


def _observed(
    slots: int, count: int, device: str
) -> tuple[list[tuple[nn.Module, Mapping[str, Tensor]]], Tensor, Tensor]:
    """Networks, each with its gradients of the same images, and these with their labels."""
    generator = torch_generator(0, "images")
    images = torch.rand(count, 3, 32, 32, generator=generator).mul_(2).sub_(1).to(device)
    labels = torch.randint(10, (count,), generator=generator).to(device)
    built = (models.build("lenet_sigmoid", 3, 10, torch_generator(slot, "inversion")) for slot in range(slots))
    networks = [network.to(device).eval() for network in built]
    return [(network, record_gradients(network, images, labels)) for network in networks], images, labels


def inversion(count: int, asked: Asked, seconds: float) -> Values:
    """An iteration of gradient inversion on some images at once."""
    ((network, gradients),), images, labels = _observed(1, count, asked.device)
    matching = GradientMatching(network, gradients, (3, 32, 32))
    weights, iterations = torch.full((count,), 0.01, device=asked.device), 5 if asked.quick else 50

    def search() -> None:
        """Some iterations."""
        reconstruct(matching, labels, torch.zeros_like(images), weights, iterations=iterations, learning_rate=0.1)

    found = timed({"search": search}, asked.device, seconds, {"search": 1 / iterations}, "search", f"{count} images")
    yield from ({**row, "case": f"{count} images"} for row in found)
    yield {"metric": "operations", "value": operations(search, 1) / iterations}


def inversions(count: int, asked: Asked, seconds: float) -> Values:
    """An iteration of gradient inversion of K networks on 8 images each, and what the stack asks for."""
    config = GradientInversionConfig(iterations=5 if asked.quick else 50)
    observed, images, labels = _observed(count, 8, asked.device)
    weights, places = torch.full((8,), 0.01, device=asked.device), torch.arange(8, device=asked.device)
    searches = [
        PublishedReconstruction(*one, labels, places, torch.zeros_like(images), weights, config) for one in observed
    ]
    steps: dict[str, Step] = {STACK: lambda: inverted(searches), ONE: lambda: inverted(searches[:1])}
    times = {STACK: 1 / config.iterations, ONE: count / config.iterations}
    yield from timed(steps, asked.device, seconds, times, STACK, f"K = {count}")
    yield {"metric": "operations", "value": operations(steps[STACK], 1) / config.iterations}


def model_inversions(model: str, count: int, asked: Asked, seconds: float) -> Values:
    """600 iterations of model inversion of K networks, ten classes with five weights, and the whole attack."""
    made = [models.build(model, 3, 10, torch_generator(slot, "inversion")) for slot in range(count)]
    weights = {name: value.detach() for name, value in stack.stacked(made).items()}
    params = {name: value.to(asked.device) for name, value in weights.items()}
    network = made[0].to(asked.device).eval()
    size = memory.stack_size("auto", count, asked.device, network, (3, 32, 32), 256)
    few, many = (2, 4) if asked.quick else (20, 120)

    def search(iterations: int) -> float:
        """Seconds of some iterations of all networks."""
        began = time.perf_counter()
        for first in range(0, count, size):
            some = {name: value[first : first + size] for name, value in params.items()}
            images = torch.zeros(50 * len(some["head.bias"]), 3, 32, 32, device=asked.device)
            labels = torch.arange(len(images), device=asked.device) % 10
            each = torch.full((len(images),), 0.01, device=asked.device)
            invert(network, some, labels, images, each, bounds=each + 1, learning_rate=0.1, moments=[iterations])
        _done(asked.device)
        return time.perf_counter() - began

    eager = mock.patch.object(search_images, "cuda_graph", side_effect=RuntimeError("left to its kernels"))
    for way in (CAPTURED_SEARCH, EAGER_SEARCH):
        with contextlib.nullcontext() if way == CAPTURED_SEARCH else eager:
            search(few)
            short, long = search(few), search(many)
        each = (long - short) / (many - few)
        yield {"case": f"{model}, K = {count}, {way}", "metric": "s_of_600", "value": 600 * each}
        yield {"case": f"{model}, K = {count}, {way}", "metric": "start_s", "value": short - few * each}
    attack = AttackRequest(
        model=model,
        dataset=request(model, BATCH, asked.device, "none", 1).dataset,
        weights=weights,
        replicas=range(count),
        config=ModelInversionConfig(iterations=few if asked.quick else 600),
        seed=0,
        slug="benchmark",
        device=asked.device,
    )
    began = time.perf_counter()
    invert_models(attack)
    yield {"metric": "whole_s", "value": time.perf_counter() - began}


def covariances(asked: Asked, seconds: float) -> Values:
    """Seconds of the moments of auxiliary records, of few small ones on a CPU too."""
    sizes = ((200, 64), (300, 100)) if asked.quick else ((2000, 1024), (8000, 3072))
    for count, values in sizes:
        records = np.random.default_rng(0).random((count, values), dtype=np.float32)
        small = (count, values) == sizes[0]
        for device in dict.fromkeys(("cpu", asked.device) if small else (asked.device,)):
            for turn in ("first", "again") if small else ("again",):
                began = time.perf_counter()
                population_moments(records, device=device)
                case = f"{count} records of {values} values, {device}, {turn}"
                yield {"case": case, "metric": "s", "value": time.perf_counter() - began}
