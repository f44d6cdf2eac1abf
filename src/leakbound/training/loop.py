"""The training loop of every defense, and SGD over a stack, which most defenses are trained by."""

import gc
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound import models
from leakbound.accounting.event import PrivacyEvent
from leakbound.training import memory, stack
from leakbound.training.batches import ShuffledBatches, StackedBatches
from leakbound.training.checkpoint import Checkpoint, fingerprint
from leakbound.training.cuda_graph import Replayed, cuda_graph
from leakbound.training.progress import Progress, progress
from leakbound.training.rates import chosen_rates, recipes
from leakbound.training.request import Slot, TrainingRequest, TrainingResult
from leakbound.training.uploads import StackUploads

logger = logging.getLogger("leakbound")
_CURVE_TYPES = {"replica": "int64", "learning_rate": "float64", "step": "int64", "metric": "str", "value": "float64"}
_Row = tuple[int, float, int, str, float]


@runtime_checkable
class Learner(Protocol):
    """Some slots that are trained side by side by one defense's rule."""

    model: nn.Module

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""

    def step(self) -> None:
        """One optimisation step of every slot."""

    def metrics(self) -> dict[str, float]:
        """Metrics of the defense itself so far, the same for all slots, e.g. ``epsilon``."""

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Record of what ``steps`` steps of a slot did to the members."""

    def state(self) -> dict[str, Any]:
        """All that the next steps depend on, as tensors and plain values."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""


def train_stack(request: TrainingRequest) -> TrainingResult:
    """Train by SGD, as many slots at a time as ``max_stack`` allows."""
    size = memory.stack_size(
        request.config.max_stack,
        len(request.slots),
        request.device,
        build(request, 0),
        request.image_shape,
        request.records,
        kept_images(request),
    )
    return run(request, StackLearner, size)


def kept_images(request: TrainingRequest) -> int:
    """Images that would fill the memory which a slot takes all the time: noisy copies, or noise that is drawn ahead."""
    client = request.client
    values = memory.PARAMETER_NOISE_VALUES.on(request.device) if client.defense.changes_gradients else 0
    block = memory.NOISE_STEPS.on(request.device) * request.records
    return -(-values // math.prod(request.image_shape)) + client.kept_images(request.dataset.drawing.members, block)


class StackLearner:
    """SGD of some slots as one stack.

    Args:
        request: The run.
        slots: Which of its slots.
    """

    def __init__(self, request: TrainingRequest, slots: Sequence[Slot]) -> None:
        self._request = request
        networks = [build(request, slot.replica) for slot in slots]
        self._weights = stack.Weights(networks, [slot.learning_rate for slot in slots], request.device)
        self.model = networks[0].to(request.device)
        self._optimizer = sgd(request, self._weights.leaves, 1.0)
        images, rows, self._labels = members_of(request, slots)
        orders = [
            ShuffledBatches(rows.shape[1], request.records, request.generator(slot.replica, "batches"))
            for slot in slots
        ]
        self._batches = StackedBatches(orders, request.device)
        sources = [request.noise(slot.replica) for slot in slots]
        self._inputs = request.client.inputs(images, rows, sources)
        self._uploads = StackUploads(request.client, sources)
        self._capture = cuda_graph if torch.device(request.device).type == "cuda" else None
        self._pass = Replayed(self._differentiate, self._capture)

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""
        return self._weights.params

    def step(self) -> None:
        """One optimisation step of every slot."""
        indices = self._batches.draw()
        noise = self._inputs.noise(indices.shape[1])
        self._pass(indices, *([] if noise is None else [noise]))
        if self._request.defense.changes_gradients:
            self._uploads.apply(self._weights.parts(self._gradients))
            self._update()

    def _differentiate(self, indices: Tensor, noise: Tensor | None = None) -> None:
        """Gradients of a step, and the update if they are uploaded as they are."""
        logits = stack.forward(self.model, self.params, self._inputs.seen(indices, noise))
        self._gradients = stack.gradients(self._weights.leaves, logits, self._labels.gather(1, indices))
        if not self._request.defense.changes_gradients:
            self._update()

    def _update(self) -> None:
        """Momentum and step by the gradients."""
        self._weights.scale(self._gradients)
        for leaf, gradient in zip(self._weights.leaves, self._gradients, strict=True):
            leaf.grad = gradient
        self._optimizer.step()

    def metrics(self) -> dict[str, float]:
        """None of its own."""
        return {}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Shuffled epochs, and the most frequent use of a record."""
        return self._request.client.event(
            sampling="shuffled",
            population=self._labels.shape[1],
            batch_size=self._request.records,
            steps=steps,
            uses=int(self._batches.now(slot).uses.max()),
        )

    def state(self) -> dict[str, Any]:
        """Weights, optimizer, generators, what the defense keeps; of secure noise nothing."""
        return {
            "params": {name: value.detach() for name, value in self.params.items()},
            "optimizer": self._optimizer.state_dict(),
            "batches": self._batches.state(),
            "inputs": self._inputs.state(),
            "uploads": self._uploads.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for name, value in self.params.items():
            value.detach().copy_(state["params"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        self._pass = Replayed(self._differentiate, self._capture)  # momentum lies elsewhere now
        self._batches.restore(state["batches"])
        self._inputs.restore(state["inputs"])
        self._uploads.restore(state["uploads"])


def members_of(
    request: TrainingRequest, slots: Sequence[Slot]
) -> tuple[Float[Tensor, "n colors height width"], Int[Tensor, "slots members"], Int[Tensor, "slots members"]]:
    """Members of some slots on the device: images, rows of each slot's own, and their labels as the slot has them."""
    data, parts = request.dataset, [request.dataset.parts(slot.replica) for slot in slots]
    used, places = np.unique(np.stack([part.members for part in parts]), return_inverse=True)
    rows = torch.from_numpy(places.reshape(len(slots), -1))
    labels = [data.labels(slot.replica)[part.members] for slot, part in zip(slots, parts, strict=True)]
    arrays = (torch.from_numpy(data.pool.images[used]), rows, torch.from_numpy(np.stack(labels)))
    images, rows, given = (array.to(request.device) for array in arrays)
    return images, rows, given


def build(request: TrainingRequest, replica: int) -> nn.Module:
    """Untrained network of a replica, on the CPU; the same on every device."""
    generator = request.generator(replica, "init")
    return models.build(
        request.model, request.dataset.colors, len(request.dataset.classes), generator, request.dataset.side
    )


def sgd(request: TrainingRequest, params: list[Tensor], learning_rate: float) -> torch.optim.SGD:
    """The optimizer of every defense."""
    return torch.optim.SGD(params, lr=learning_rate, momentum=request.config.momentum, fused=True)


def run(
    request: TrainingRequest, learner: Callable[[TrainingRequest, Sequence[Slot]], Learner], size: int
) -> TrainingResult:
    """Train all slots, ``size`` at a time, from the last checkpoint if there is one.

    Args:
        request: The run.
        learner: Makes the learner of some slots.
        size: Slots side by side. Where memory does not hold them, half as many are tried.

    Raises:
        torch.OutOfMemoryError: If it does not hold one.
    """
    identity = fingerprint(request) if request.checkpoint else ""
    checkpoint = Checkpoint(request.checkpoint, identity, request.config.checkpoint_seconds)
    saved = checkpoint.load() or {"size": size, "finished": [], "current": None}
    size, finished, current = saved["size"], saved["finished"], saved["current"]
    slots, halved = request.slots, False
    done = request.steps * len(finished) + (current["step"] if current else 0)
    left = len(slots) - _trained(finished)
    with progress(request.slug, request.steps * (len(finished) - (-left // size)), done) as bar:
        while _trained(finished) < len(slots):
            some = slots[_trained(finished) :][:size]
            course: _Course | None = None
            try:
                course = _Course(request, learner(request, some), some, current)
                while course.advance(bar):
                    if checkpoint.due():
                        checkpoint.save({"size": size, "finished": finished, "current": course.state()})
                finished.append(course.result())
            except torch.OutOfMemoryError:
                if len(some) == 1:
                    raise
                size = len(some) // 2
            else:
                if checkpoint.due():
                    checkpoint.save({"size": size, "finished": finished, "current": None})
            del course
            current = None
            if size < len(some):
                told = (request.slug, len(some), size)
                logger.log(
                    logging.INFO if halved else logging.WARNING,
                    "%s: the GPU's memory does not hold %d slots side by side; they go on anew, %d at a time",
                    *told,
                )
                halved = True
                gc.collect()  # a learner and its recorded step hold each other
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
    rows = pd.DataFrame([row for chunk in finished for row in chunk["rows"]], columns=[*_CURVE_TYPES])
    order = ["replica", "learning_rate", "step"]
    curves = rows.astype(_CURVE_TYPES).sort_values(order, kind="stable", ignore_index=True)
    diverged = [flag for chunk in finished for flag in chunk["diverged"]]
    rates = chosen_rates(slots, curves, diverged)
    if len(request.lengths) > 1:
        others = [row for chunk in finished for row in chunk["ends"]]
        ends = pd.DataFrame(others, columns=[*_CURVE_TYPES, "length"]).astype({**_CURVE_TYPES, "length": "str"})
        curves = pd.concat([curves.assign(length="full").astype({"length": "str"}), ends], ignore_index=True)
        rates = recipes(rates, request.lengths, ends)
    return TrainingResult(
        weights={name: torch.cat([chunk["weights"][name] for chunk in finished]) for name in finished[0]["weights"]},
        curves=curves,
        events=[PrivacyEvent(**event) for chunk in finished for event in chunk["events"]],
        diverged=diverged,
        rates=rates,
    )


def _trained(finished: Sequence[dict[str, Any]]) -> int:
    """Number of slots that are at the end of their way."""
    return sum(len(chunk["events"]) for chunk in finished)


class _Course:
    """The way of some slots through all steps, with their curves."""

    def __init__(
        self, request: TrainingRequest, learner: Learner, slots: Sequence[Slot], saved: dict[str, Any] | None
    ) -> None:
        self._request, self._learner, self._slots = request, learner, slots
        parts = [request.dataset.parts(slot.replica) for slot in slots]
        self._parts = {name: np.stack([getattr(part, name) for part in parts]) for name in ("members", "validation")}
        self._labels = np.stack([request.dataset.labels(slot.replica) for slot in slots])
        steps, points = request.steps, request.config.evaluations
        self._points = {round(steps * (i + 1) / points) for i in range(points)} - ({0} if steps else set())
        self._middle = min(steps, max(1, round(steps / 2))) if "half" in request.lengths else -1
        self._points |= {self._middle} - {-1}
        self._step = 0
        self._rows: list[_Row] = []
        self._ended: dict[int, dict[str, Any]] = {}  # slot to the privacy event it ended with
        self._diverged: list[int] = []
        self._keeps_best = request.defense.keeps_best or "best" in request.lengths
        self._best: dict[int, dict[str, Any]] = {}  # slot to the weights of its best point, where they are kept
        self._half: dict[int, dict[str, Any]] = {}  # slot to weights and rows after half of the steps, likewise
        if saved is not None:
            learner.restore(saved["learner"])
            self._step, self._rows = saved["step"], saved["rows"]
            self._ended, self._diverged, self._best = saved["ended"], saved["diverged"], saved["best"]
            self._half = saved["half"]

    def advance(self, bar: Progress) -> bool:
        """One step; False if there was none left to do, or nobody left to do it."""
        if len(self._ended) == len(self._slots):
            return False
        if self._step < self._request.steps:
            self._learner.step()
            self._step += 1
            bar.advance()
        if self._step in self._points:
            self._evaluate(bar)
        return True

    def _measured(self, params: stack.Parameters, *, whole: bool) -> dict[str, np.ndarray]:
        """Losses (nats) and accuracies of every slot on its members, its validation records and the test records."""
        data, found = self._request.dataset, {}
        splits = {"train": data.pool, "validation": data.pool, "test": data.test}
        rows = {"train": self._parts["members"], "validation": self._parts["validation"], "test": None}
        for name, split in splits.items():
            labels = self._labels if split is data.pool else None
            measured = stack.evaluate_split(self._learner.model, params, split, rows[name], labels, whole=whole)
            found[f"{name}_loss"], found[f"{name}_accuracy"] = measured
        return found

    def _evaluate(self, bar: Progress) -> None:
        """Extend the curves of all slots that are still finite, and end those that are not or that are done."""
        last, learner = self._step == self._request.steps, self._learner
        measured = self._measured(learner.params, whole=last or self._step == self._middle)
        own, finite = learner.metrics(), stack.finite_slots(learner.params)
        sound = [bool(flag and np.isfinite(loss)) for flag, loss in zip(finite, measured["train_loss"], strict=True)]
        if self._keeps_best:
            self._keep_best(measured, sound)
        if self._request.defense.keeps_best and last:
            measured = self._measured(self._kept(), whole=True)
        for number, slot in enumerate(self._slots):
            if number in self._ended:
                continue
            if sound[number]:
                rows = self._point(number, self._step, measured, own)
                if last and self._request.defense.keeps_best:
                    rows.append((*rows[0][:3], "kept_step", float(self._best[number]["step"])))
                self._rows += rows
                if self._step == self._middle:
                    self._half[number] = {"rows": rows, "params": self._held(number)}
            else:
                told = (self._request.slug, slot.replica, slot.learning_rate, self._step)
                logger.warning("%s, replica %d at rate %g diverged before step %d", *told)
                self._diverged.append(number)
            if not sound[number] or last:
                self._ended[number] = learner.event(number, self._step).to_dict()
        if self._request.on_rows is not None:
            self._request.on_rows(pd.DataFrame(self._rows, columns=[*_CURVE_TYPES]))
        means = {name.replace("_", " "): float(value.mean()) for name, value in measured.items()}
        bar.report(self._slots, self._step, self._request.steps, {**means, **own})

    def _point(self, number: int, step: int, measured: dict[str, np.ndarray], own: dict[str, float]) -> list[_Row]:
        """Rows of a slot's point: what was measured, and what its training so far has told, if a bound holds."""
        request, slot = self._request, self._slots[number]
        values = {**{name: float(value[number]) for name, value in measured.items()}, **own}
        if request.told and (nats := request.told(self._learner.event(number, self._step))) is not None:
            values["leakage"] = nats
        return [(slot.replica, slot.learning_rate, step, metric, value) for metric, value in values.items()]

    def _held(self, number: int) -> dict[str, Tensor]:
        """Copy of a slot's weights as they are now, on the CPU."""
        return {name: value.detach()[number].cpu().clone() for name, value in self._learner.params.items()}

    def _keep_best(self, measured: dict[str, np.ndarray], sound: Sequence[bool]) -> None:
        """Keep the weights of slots that do better on validation records than ever before; of equals the earlier."""
        ranks = zip(measured["validation_accuracy"], -measured["validation_loss"], strict=True)
        for number, rank in enumerate((float(accuracy), float(loss)) for accuracy, loss in ranks):
            goes_on = sound[number] and number not in self._ended
            if goes_on and (number not in self._best or rank > tuple(self._best[number]["rank"])):
                self._best[number] = {"rank": rank, "step": self._step, "params": self._held(number)}

    def _kept(self, length: str = "best") -> stack.Parameters:
        """Weights of each slot's best or middle point, where it has one, or as they are now."""
        params = {name: value.detach().clone() for name, value in self._learner.params.items()}
        points = {"best": self._best, "half": self._half}.get(length, {})
        for number, point in points.items():
            for name, value in point["params"].items():
                params[name][number] = value
        return params

    def state(self) -> dict[str, Any]:
        """All that the rest of the way depends on."""
        return {
            "step": self._step,
            "rows": self._rows,
            "ended": self._ended,
            "diverged": self._diverged,
            "best": self._best,
            "half": self._half,
            "learner": self._learner.state(),
        }

    def result(self) -> dict[str, Any]:
        """Weights, curves, events and divergence of the slots at the end of the way, with points of other lengths."""
        slots, ends = range(len(self._slots)), [(*row, "half") for one in self._half.values() for row in one["rows"]]
        kept = []
        for length in self._request.lengths:
            ends_with = "best" if length == "full" and self._request.defense.keeps_best else length
            params = {name: value.cpu() for name, value in self._kept(ends_with).items()}
            sound = {"half": self._half, "best": self._best}.get(length, set(slots) - set(self._diverged))
            for value in params.values():
                value[[slot for slot in slots if slot not in sound]] = torch.nan
            kept.append(params)
        if "best" in self._request.lengths and self._best:
            measured, own = self._measured(self._kept(), whole=True), self._learner.metrics()
            for slot, best in self._best.items():
                ends += [(*row, "best") for row in self._point(slot, best["step"], measured, own)]
        events, diverged = [self._ended[slot] for slot in slots], [slot in self._diverged for slot in slots]
        weights = {name: torch.stack([one[name] for one in kept], dim=1).flatten(0, 1) for name in kept[0]}
        return {"weights": weights, "rows": self._rows, "ends": ends, "events": events, "diverged": diverged}
