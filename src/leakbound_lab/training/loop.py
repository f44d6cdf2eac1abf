"""The training loop of every defense: stacks of slots one after another, each from first to last step.

A stack has curves, weights of kept points, divergence, privacy events, and checkpoints to resume from.
"""

import gc
import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from leakbound.accounting.leakage import PrivacyEvent
from leakbound_lab.models import memory
from leakbound_lab.training import stack
from leakbound_lab.training.checkpoint import Checkpoint, fingerprint
from leakbound_lab.training.correlated_scores import BothScores
from leakbound_lab.training.request import (
    Slot,
    TrainingRequest,
    TrainingResult,
    chosen_rates,
    initial_network,
    rates_of_lengths,
)
from leakbound_lab.training.upload_scores import UploadScores

logger = logging.getLogger("leakbound")
CURVE_TYPES = {
    "replica": "int64",
    "learning_rate": "float64",
    "step": "int64",
    "metric": "str",
    "value": "float64",
}
"""Columns of curves, and their types."""
_PROGRESS = ("_step", "_rows", "_final_events", "_diverged", "_snapshots")
_Row = tuple[int, float, int, str, float]
_Measurement = dict[str, np.ndarray]


@runtime_checkable
class Learner(Protocol):
    """Interface of what trains several slots together by the rule of one defense."""

    model: nn.Module

    @property
    def params(self) -> stack.Parameters:
        """Parameters (slots, ...) as they are now."""

    def step(self) -> None:
        """Take one optimisation step of every slot."""

    def metrics(self) -> dict[str, float]:
        """Return metrics of the defense itself so far, the same for all slots, e.g. ``epsilon``."""

    def event(self, slot: int, steps: int) -> PrivacyEvent:
        """Return the privacy event of ``steps`` steps of a slot."""

    def state(self) -> dict[str, Any]:
        """Return all that the next steps depend on, as tensors and plain values."""

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""


MakeLearner = Callable[[TrainingRequest, Sequence[Slot]], Learner]


def train_slots(request: TrainingRequest, learner: MakeLearner, size: int) -> TrainingResult:
    """Train all slots, ``size`` at a time, from the last checkpoint if there is one.

    Args:
        request: The run.
        learner: Function from the request and some slots to their learner.
        size: Number of slots in a stack. It is halved as long as memory does not hold them.

    Raises:
        torch.OutOfMemoryError: If memory does not hold one slot.
    """
    # Finished stacks and the one in training, as a checkpoint of the same run holds them.
    identity = fingerprint(request) if request.checkpoint else ""
    checkpoint = Checkpoint(request.checkpoint, identity, request.config.checkpoint_seconds)
    progress = checkpoint.load() or {"size": size, "finished": []}
    halved = False
    while slots := request.slots[sum(len(stack["events"]) for stack in progress["finished"]) :][
        : progress["size"]
    ]:
        try:
            _train_stack(request, learner, slots, progress, checkpoint)
            continue
        except torch.OutOfMemoryError:
            if len(slots) == 1:
                raise
        # Too large for the memory: the same slots start again, half as many at a time.
        progress["size"] = len(slots) // 2
        logger.log(
            logging.INFO if halved else logging.WARNING,
            "%s: the GPU's memory does not hold %d slots side by side; they start again, %d at a time",
            request.slug,
            len(slots),
            progress["size"],
        )
        halved = True
        gc.collect()  # a learner and its captured step refer to each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return _result(request, progress["finished"])


def _train_stack(
    request: TrainingRequest,
    learner: MakeLearner,
    slots: Sequence[Slot],
    progress: dict[str, Any],
    checkpoint: Checkpoint,
) -> None:
    """Train some slots to their end, and add their result to the finished stacks of the progress.

    Raises:
        torch.OutOfMemoryError: If memory does not hold all of them.
    """
    training = StackTraining(request, learner(request, slots), slots, progress.pop("current", None))
    while training.advance():
        if checkpoint.due():
            checkpoint.save({**progress, "current": training.state()})
    progress["finished"].append(training.result())
    if checkpoint.due():
        checkpoint.save(progress)


def slots_per_stack(request: TrainingRequest, records: int) -> int:
    """Return how many slots a stack has, whose steps use so many records of each.

    What a slot always keeps is counted in images: noisy copies, noise drawn ahead.
    """
    values = memory.PARAMETER_NOISE_VALUES.on(request.device) if request.defense.changes_gradients else 0
    block = memory.NOISE_STEPS.on(request.device) * request.records
    copies = request.client.kept_images(request.dataset.drawing.members, block)
    return memory.stack_size(
        request.config.max_stack,
        len(request.slots),
        request.device,
        initial_network(request, 0),
        request.image_shape,
        records,
        -(-values // math.prod(request.image_shape)) + copies,
    )


def _result(request: TrainingRequest, finished: Sequence[dict[str, Any]]) -> TrainingResult:
    """Join the stacks of a run."""
    rows = pd.DataFrame([row for stack in finished for row in stack["rows"]], columns=[*CURVE_TYPES])
    order = ["replica", "learning_rate", "step"]
    curves = rows.astype(CURVE_TYPES).sort_values(order, kind="stable", ignore_index=True)
    diverged = [flag for stack in finished for flag in stack["diverged"]]
    rates = chosen_rates(request.slots, curves, diverged)
    if len(request.lengths) > 1:
        points = [row for stack in finished for row in stack["ends"]]
        ends = pd.DataFrame(points, columns=[*CURVE_TYPES, "length"]).astype({**CURVE_TYPES, "length": "str"})
        curves = pd.concat([curves.assign(length="full").astype({"length": "str"}), ends], ignore_index=True)
        rates = rates_of_lengths(rates, request.lengths, ends)
    return TrainingResult(
        weights={
            name: torch.cat([stack["weights"][name] for stack in finished]) for name in finished[0]["weights"]
        },
        curves=curves,
        events=[PrivacyEvent(**event) for stack in finished for event in stack["events"]],
        diverged=diverged,
        rates=rates,
        scores=None if request.scoring is None else torch.cat([stack["scores"] for stack in finished]),
    )


class StackTraining:
    """Training of the slots of one stack through all steps, with their curves.

    Args:
        request: The run.
        learner: Trains the slots.
        slots: Slots of the run to train.
        saved: Result of :meth:`state` to resume from, or None to begin at step 0.
    """

    def __init__(
        self, request: TrainingRequest, learner: Learner, slots: Sequence[Slot], saved: dict[str, Any] | None
    ) -> None:
        self._request = request
        self._learner = learner
        self._slots = slots
        # What curves are measured on: records, rows and labels of each slot, by default all and their own.
        data = request.dataset
        parts = [data.parts(slot.replica) for slot in slots]
        labels = np.stack([data.labels(slot.replica) for slot in slots])
        self._records = {
            "train": (data.pool, np.stack([part.members for part in parts]), labels),
            "validation": (data.pool, np.stack([part.validation for part in parts]), labels),
            "test": (data.test, None, None),
        }
        # Steps after which the curves have a point: equally many apart, and the middle where it is kept.
        steps = request.steps
        points = request.config.evaluations
        self._middle = min(steps, max(1, round(steps / 2))) if "half" in request.lengths else -1
        self._points = {round(steps * (i + 1) / points) for i in range(points)} - ({0} if steps else set())
        self._points |= {self._middle} - {-1}
        self._keeps_best = request.defense.keeps_best or "best" in request.lengths
        self._scores: UploadScores | BothScores | None = None
        if request.scoring is not None:
            kind = UploadScores if request.client.noise_factor is None else BothScores
            self._scores = kind(request, request.scoring, slots, learner.model, learner.params)
        self._step = 0
        self._rows: list[_Row] = []
        self._final_events: dict[int, dict[str, Any]] = {}  # slot to the privacy event it ended with
        self._diverged: list[int] = []
        # Of each length but the full one, slot to its weights at that point, with its rows or its rank.
        self._snapshots: dict[str, dict[int, dict[str, Any]]] = {"half": {}, "best": {}}
        if saved is not None:
            vars(self).update(saved["progress"])
            learner.restore(saved["learner"])
            if self._scores is not None:
                self._scores.restore(saved["scores"])
        self._reported = (time.monotonic(), self._step)

    @property
    def _last(self) -> bool:
        """True after the last step."""
        return self._step == self._request.steps

    def advance(self) -> bool:
        """Take one step. Return False if no step is left, or every slot has ended."""
        if len(self._final_events) == len(self._slots):
            return False
        # The step itself; a training of no steps only has its start evaluated.
        if not self._last:
            self._learner.step()
            self._step += 1
            if self._scores is not None:
                self._scores.add(self._learner.params, last=self._last)
        # A point of the curves, at which slots end that diverged or are complete.
        if self._step in self._points:
            self._evaluate()
        return True

    def _measure(self, params: stack.Parameters, *, whole: bool) -> _Measurement:
        """Compute losses (nats) and accuracies of every slot on members, validation and test records."""
        measurement = {}
        for name, records in self._records.items():
            loss, accuracy = stack.evaluate_split(self._learner.model, params, *records, whole=whole)
            measurement[f"{name}_loss"] = loss
            measurement[f"{name}_accuracy"] = accuracy
        return measurement

    def _evaluate(self) -> None:
        """Extend the curves of all finite slots, and end those that are not finite or complete."""
        # The weights as they are, on all records where the point is an end.
        measurement = self._measure(self._learner.params, whole=self._last or self._step == self._middle)
        shared = self._learner.metrics()
        finite = stack.finite_slots(self._learner.params)
        sound = [
            bool(flag and np.isfinite(loss))
            for flag, loss in zip(finite, measurement["train_loss"], strict=True)
        ]
        # The best point so far; a defense that ends with its weights is measured by them.
        if self._keeps_best:
            self._keep_best(measurement, sound)
        if self._request.defense.keeps_best and self._last:
            measurement = self._measure(self._params_at("best"), whole=True)
        # Rows of each slot that goes on, for the result, the live view and the log.
        for number in range(len(self._slots)):
            if number not in self._final_events:
                self._extend(number, measurement, shared, sound=sound[number])
        if self._request.on_rows is not None:
            self._request.on_rows(pd.DataFrame(self._rows, columns=[*CURVE_TYPES]))
        means = {name.replace("_", " "): float(value.mean()) for name, value in measurement.items()}
        self._report({**means, **shared})

    def _extend(
        self, number: int, measurement: _Measurement, shared: dict[str, float], *, sound: bool
    ) -> None:
        """Add a point to the curves of one slot, or end it if it is not finite or complete."""
        if sound:
            rows = self._point(number, self._step, measurement, shared)
            if self._last and self._request.defense.keeps_best:
                rows.append((*rows[0][:3], "kept_step", float(self._snapshots["best"][number]["step"])))
            self._rows += rows
            if self._step == self._middle:
                self._snapshots["half"][number] = {"rows": rows, "params": self._weights_of_slot(number)}
        else:
            slot = self._slots[number]
            logger.warning(
                "%s, replica %d at rate %g diverged before step %d",
                self._request.slug,
                slot.replica,
                slot.learning_rate,
                self._step,
            )
            self._diverged.append(number)
        if self._last or not sound:
            self._final_events[number] = self._learner.event(number, self._step).to_dict()

    def _point(
        self, number: int, step: int, measurement: _Measurement, shared: dict[str, float]
    ) -> list[_Row]:
        """Return rows of one slot at one step: measured values, and its leakage so far if a bound holds."""
        slot = self._slots[number]
        values = {name: float(value[number]) for name, value in measurement.items()} | shared
        if self._request.leakage_after is not None:
            leakage = self._request.leakage_after(self._learner.event(number, self._step))
            if leakage is not None:
                values["leakage"] = leakage
        return [(slot.replica, slot.learning_rate, step, metric, value) for metric, value in values.items()]

    def _report(self, metrics: dict[str, float]) -> None:
        """Write one line to the log: step, means over the slots, speed since the last line."""
        now = time.monotonic()
        before, done = self._reported
        self._reported = (now, self._step)
        ends = [self._slots[place] for place in sorted({0, len(self._slots) - 1})]
        logger.info(
            "%s, %s: step %d of %d: %s; %.0f steps/s",
            self._request.slug,
            " to ".join(f"replica {slot.replica} at rate {slot.learning_rate:g}" for slot in ends),
            self._step,
            self._request.steps,
            ", ".join(f"{name} {value:.4g}" for name, value in metrics.items()),
            (self._step - done) / max(now - before, 1e-9),
        )

    def _weights_of_slot(self, number: int) -> dict[str, Tensor]:
        """Copy the current weights of a slot to the CPU."""
        return {name: value.detach()[number].cpu().clone() for name, value in self._learner.params.items()}

    def _keep_best(self, measurement: _Measurement, sound: Sequence[bool]) -> None:
        """Keep weights of slots with the best validation result so far. Of equal ones the first counts."""
        best = self._snapshots["best"]
        for number in range(len(self._slots)):
            rank = (
                float(measurement["validation_accuracy"][number]),
                -float(measurement["validation_loss"][number]),
            )
            better = number not in best or rank > tuple(best[number]["rank"])
            if better and sound[number] and number not in self._final_events:
                best[number] = {"rank": rank, "step": self._step, "params": self._weights_of_slot(number)}

    def _params_at(self, length: str) -> stack.Parameters:
        """Return the weights of each slot's best or middle point, or its current ones if it has none."""
        params = {name: value.detach().clone() for name, value in self._learner.params.items()}
        for number, point in self._snapshots.get(length, {}).items():
            for name, value in point["params"].items():
                params[name][number] = value
        return params

    def state(self) -> dict[str, Any]:
        """Return all that the remaining steps depend on."""
        return {
            "progress": {name: vars(self)[name] for name in _PROGRESS},
            "learner": self._learner.state(),
            "scores": None if self._scores is None else self._scores.state(),
        }

    def result(self) -> dict[str, Any]:
        """Return weights, curves, events and divergence of the slots, with points of other lengths."""
        weights_of_lengths = [self._weights_after(length) for length in self._request.lengths]
        return {
            "weights": {
                name: torch.stack([weights[name] for weights in weights_of_lengths], dim=1).flatten(0, 1)
                for name in weights_of_lengths[0]
            },
            "rows": self._rows,
            "ends": self._points_of_other_lengths(),
            "events": [self._final_events[number] for number in range(len(self._slots))],
            "diverged": [number in self._diverged for number in range(len(self._slots))],
            "scores": None if self._scores is None else self._scores.values(),
        }

    def _weights_after(self, length: str) -> dict[str, Tensor]:
        """Return the weights at the end of a length, on the CPU, NaN for slots without them."""
        slots = range(len(self._slots))
        sound = self._snapshots.get(length, set(slots) - set(self._diverged))
        missing = [slot for slot in slots if slot not in sound]
        point = "best" if length == "full" and self._request.defense.keeps_best else length
        params = {name: value.cpu() for name, value in self._params_at(point).items()}
        for value in params.values():
            value[missing] = torch.nan
        return params

    def _points_of_other_lengths(self) -> list[tuple[int, float, int, str, float, str]]:
        """Return rows of the middle and best point of each slot, if the request asks for these lengths."""
        ends = [(*row, "half") for point in self._snapshots["half"].values() for row in point["rows"]]
        best = self._snapshots["best"]
        if "best" in self._request.lengths and best:
            measurement = self._measure(self._params_at("best"), whole=True)
            shared = self._learner.metrics()
            for slot, point in best.items():
                ends += [(*row, "best") for row in self._point(slot, point["step"], measurement, shared)]
        return ends
