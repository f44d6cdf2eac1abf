"""The training loop of every defense, and SGD over a stack, which most defenses are trained by."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from leakbound import models
from leakbound.accounting.event import PrivacyEvent
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training import stack
from leakbound.training.batches import ShuffledBatches
from leakbound.training.checkpoint import Checkpoint, fingerprint
from leakbound.training.client_steps import ClientStep
from leakbound.training.progress import Progress, progress
from leakbound.training.request import TrainingRequest, TrainingResult

logger = logging.getLogger("leakbound")
_CURVE_TYPES = {"replica": "int64", "step": "int64", "metric": "str", "value": "float64"}


@runtime_checkable
class Learner(Protocol):
    """Some replicas that are trained side by side by one defense's rule."""

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
    """Train by SGD, as many replicas at a time as ``max_stack`` allows."""
    size = stack.stack_size(
        request.config.max_stack,
        request.replicas,
        request.device,
        build(request, 0),
        request.image_shape,
        request.records,
        len(request.dataset.train.labels) if request.client.keeps_copies else 0,
    )
    return run(request, StackLearner, size)


class StackLearner:
    """SGD of some replicas as one stack.

    Args:
        request: The run.
        replicas: Which of its replicas.
    """

    def __init__(self, request: TrainingRequest, replicas: range) -> None:
        self._request = request
        networks = [build(request, replica) for replica in replicas]
        self.params = stack.stacked(networks, request.device)
        self.model = networks[0].to(request.device)
        self._optimizer = sgd(request, list(self.params.values()))
        members = request.dataset.train
        self._labels = torch.from_numpy(members.labels).to(request.device)
        words = (request.seed, request.slug)
        self._batches = [
            ShuffledBatches(len(members.labels), request.records, torch_generator(*words, replica, "batches"))
            for replica in replicas
        ]
        sources = [request.noise(replica) for replica in replicas]
        self._inputs = request.client.inputs(torch.from_numpy(members.images).to(request.device), sources)
        self._uploads = StackUploads(request.client, sources)

    def step(self) -> None:
        """One optimisation step of every slot."""
        indices = torch.stack([batches.draw() for batches in self._batches]).to(self._labels.device, non_blocking=True)
        logits = stack.forward(self.model, self.params, self._inputs.take(indices))
        self._optimizer.zero_grad()
        stack.loss(logits, self._labels[indices]).sum().backward()
        self._uploads.apply([value.grad for value in self.params.values() if value.grad is not None])
        self._optimizer.step()

    def metrics(self) -> dict[str, float]:
        """None of its own."""
        return {}

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Shuffled epochs, and the most frequent use of a record."""
        return self._request.client.event(
            sampling="shuffled",
            population=len(self._labels),
            batch_size=self._request.records,
            steps=steps,
            uses=int(self._batches[slot].uses.max()),
        )

    def state(self) -> dict[str, Any]:
        """Weights, optimizer, generators, what the defense keeps; of secure noise nothing."""
        return {
            "params": {name: value.detach() for name, value in self.params.items()},
            "optimizer": self._optimizer.state_dict(),
            "batches": [batches.state() for batches in self._batches],
            "inputs": self._inputs.state(),
            "uploads": self._uploads.state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        with torch.no_grad():
            for name, value in self.params.items():
                value.copy_(state["params"][name])
        self._optimizer.load_state_dict(state["optimizer"])
        for batches, saved in zip(self._batches, state["batches"], strict=True):
            batches.restore(saved)
        self._inputs.restore(state["inputs"])
        self._uploads.restore(state["uploads"])


class StackUploads:
    """Disguised gradients of the slots of a stack, each on its own, so that a stack draws what each slot draws alone.

    Args:
        client: Step that each slot takes.
        sources: Of noise, or generators of it; one per slot, on the device of the stack.
    """

    def __init__(self, client: ClientStep, sources: Sequence[NoiseSource | torch.Generator]) -> None:
        self._client, self._sources = client, [as_source(source) for source in sources]
        self._kept: dict[int, list[Tensor]] = {}

    def apply(self, gradients: list[Tensor]) -> None:
        """Change gradients (slots, ...), one tensor per parameter, in place; one slot takes room at a time."""
        if not self._client.defense.changes_gradients:
            return
        for slot, source in enumerate(self._sources):
            whole = [gradient[slot : slot + 1] for gradient in gradients]
            if slot in self._kept:
                for gradient, kept in zip(whole, self._kept[slot], strict=True):
                    gradient.add_(kept.to(gradient.device))
            sent = self._client.disguised(whole, source)
            if self._client.error_feedback:
                self._kept[slot] = [gradient - one for gradient, one in zip(whole, sent, strict=True)]
            for gradient, one in zip(whole, sent, strict=True):
                gradient.copy_(one)

    def state(self) -> dict[str, Any]:
        """All that the next uploads depend on: sources, and what was not sent."""
        sources = [source.state() for source in self._sources] if self._client.defense.changes_gradients else []
        return {"sources": sources, "kept": dict(self._kept)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for source, saved in zip(self._sources, state["sources"], strict=False):
            source.restore(saved)
        self._kept = dict(state["kept"])


def build(request: TrainingRequest, replica: int) -> nn.Module:
    """Untrained network of a replica, on the CPU; the same on every device."""
    generator = torch_generator(request.seed, request.slug, replica, "init")
    return models.build(request.model, request.dataset.colors, len(request.dataset.classes), generator)


def sgd(request: TrainingRequest, params: list[Tensor]) -> torch.optim.SGD:
    """The optimizer of every defense."""
    return torch.optim.SGD(params, lr=request.learning_rate, momentum=request.config.momentum, fused=True)


def run(request: TrainingRequest, learner: Callable[[TrainingRequest, range], Learner], size: int) -> TrainingResult:
    """Train all replicas, ``size`` at a time, from the last checkpoint if there is one.

    Args:
        request: The run.
        learner: Makes the learner of some replicas.
        size: Replicas side by side.
    """
    identity = fingerprint(request) if request.checkpoint else ""
    checkpoint = Checkpoint(request.checkpoint, identity, request.config.checkpoint_seconds)
    saved = checkpoint.load() or {"size": size, "finished": [], "current": None}
    size, finished, current = saved["size"], saved["finished"], saved["current"]
    chunks = [range(i, min(i + size, request.replicas)) for i in range(0, request.replicas, size)]
    done = request.rounds * len(finished) + (current["step"] if current else 0)
    with progress(request.slug, request.rounds * len(chunks), done) as bar:
        for replicas in chunks[len(finished) :]:
            course = _Course(request, learner(request, replicas), replicas, current)
            while course.advance(bar):
                if checkpoint.due():
                    checkpoint.save({"size": size, "finished": finished, "current": course.state()})
            finished.append(course.result())
            current = None
            if checkpoint.due():
                checkpoint.save({"size": size, "finished": finished, "current": None})
    curves = pd.DataFrame([row for chunk in finished for row in chunk["rows"]], columns=[*_CURVE_TYPES])
    return TrainingResult(
        weights={name: torch.cat([chunk["weights"][name] for chunk in finished]) for name in finished[0]["weights"]},
        curves=curves.astype(_CURVE_TYPES).sort_values(["replica", "step"], kind="stable", ignore_index=True),
        events=[PrivacyEvent(**event) for chunk in finished for event in chunk["events"]],
        diverged=[flag for chunk in finished for flag in chunk["diverged"]],
        learning_rate=request.learning_rate,
    )


class _Course:
    """The way of some replicas through all steps, with their curves."""

    def __init__(
        self, request: TrainingRequest, learner: Learner, replicas: range, saved: dict[str, Any] | None
    ) -> None:
        self._request, self._learner, self._replicas = request, learner, replicas
        rounds, points = request.rounds, request.config.evaluations
        self._points = {round(rounds * (i + 1) / points) for i in range(points)} - ({0} if rounds else set())
        self._step = 0
        self._rows: list[tuple[int, int, str, float]] = []
        self._ended: dict[int, dict[str, Any]] = {}  # slot to the privacy event it ended with
        self._diverged: list[int] = []
        if saved is not None:
            learner.restore(saved["learner"])
            self._step, self._rows = saved["step"], saved["rows"]
            self._ended, self._diverged = saved["ended"], saved["diverged"]

    def advance(self, bar: Progress) -> bool:
        """One step; False if there was none left to do, or nobody left to do it."""
        if len(self._ended) == len(self._replicas):
            return False
        if self._step < self._request.rounds:
            self._learner.step()
            self._step += 1
            bar.advance()
        if self._step in self._points:
            self._evaluate(bar)
        return True

    def _evaluate(self, bar: Progress) -> None:
        """Extend the curves of all slots that are still finite, and end those that are not or that are done."""
        last = self._step == self._request.rounds
        learner, data = self._learner, self._request.dataset
        train_loss, train_accuracy = stack.evaluate_split(learner.model, learner.params, data.train, whole=last)
        test_loss, test_accuracy = stack.evaluate_split(learner.model, learner.params, data.test, whole=last)
        measured = {
            "train_loss": train_loss,
            "test_loss": test_loss,
            "train_accuracy": train_accuracy,
            "test_accuracy": test_accuracy,
        }
        own = learner.metrics()
        finite = stack.finite_slots(learner.params)
        for slot, replica in enumerate(self._replicas):
            if slot in self._ended:
                continue
            diverged = not (finite[slot] and np.isfinite(train_loss[slot]))
            if diverged:
                logger.warning("%s, replica %d diverged before step %d", self._request.slug, replica, self._step)
                self._diverged.append(slot)
            else:
                values = {**{name: float(value[slot]) for name, value in measured.items()}, **own}
                self._rows += [(replica, self._step, metric, value) for metric, value in values.items()]
            if diverged or last:
                self._ended[slot] = learner.event(slot, self._step).to_dict()
        if self._request.on_rows is not None:
            self._request.on_rows(pd.DataFrame(self._rows, columns=[*_CURVE_TYPES]))
        means = {name.replace("_", " "): float(value.mean()) for name, value in measured.items()}
        bar.report(self._replicas, self._step, self._request.rounds, {**means, **own})

    def state(self) -> dict[str, Any]:
        """All that the rest of the way depends on."""
        return {
            "step": self._step,
            "rows": self._rows,
            "ended": self._ended,
            "diverged": self._diverged,
            "learner": self._learner.state(),
        }

    def result(self) -> dict[str, Any]:
        """Weights, curves, events and divergence of the replicas at the end of the way."""
        weights = {name: value.detach().cpu().clone() for name, value in self._learner.params.items()}
        for value in weights.values():
            value[self._diverged] = torch.nan
        slots = range(len(self._replicas))
        events, diverged = [self._ended[slot] for slot in slots], [slot in self._diverged for slot in slots]
        return {"weights": weights, "rows": self._rows, "events": events, "diverged": diverged}
