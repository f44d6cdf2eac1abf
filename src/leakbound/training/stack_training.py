"""Training of one stack from first to last step: curves, weights of kept points, divergence, events."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from leakbound.accounting.event import PrivacyEvent
from leakbound.training import stack
from leakbound.training.progress_log import TrainingProgress
from leakbound.training.request import Slot, TrainingRequest
from leakbound.training.upload_scores import UploadScores

logger = logging.getLogger("leakbound")
CURVE_TYPES = {
    "replica": "int64",
    "learning_rate": "float64",
    "step": "int64",
    "metric": "str",
    "value": "float64",
}
"""Columns of curves, and their types."""
_Row = tuple[int, float, int, str, float]
_Measured = dict[str, np.ndarray]


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
        parts = [request.dataset.parts(slot.replica) for slot in slots]
        self._parts = {
            name: np.stack([getattr(part, name) for part in parts]) for name in ("members", "validation")
        }
        self._labels = np.stack([request.dataset.labels(slot.replica) for slot in slots])
        steps = request.steps
        points = request.config.evaluations
        self._middle = min(steps, max(1, round(steps / 2))) if "half" in request.lengths else -1
        self._points = {round(steps * (i + 1) / points) for i in range(points)} - ({0} if steps else set())
        self._points |= {self._middle} - {-1}
        self._step = 0
        self._rows: list[_Row] = []
        self._ended: dict[int, dict[str, Any]] = {}  # slot to the privacy event it ended with
        self._diverged: list[int] = []
        self._keeps_best = request.defense.keeps_best or "best" in request.lengths
        self._best: dict[
            int, dict[str, Any]
        ] = {}  # slot to the weights of its best point, where they are kept
        self._half: dict[
            int, dict[str, Any]
        ] = {}  # slot to weights and rows after half of the steps, likewise
        self._scores: UploadScores | None = None
        if request.scoring is not None:
            self._scores = UploadScores(request, request.scoring, slots, learner.model, learner.params)
        if saved is not None:
            learner.restore(saved["learner"])
            self._step = saved["step"]
            self._rows = saved["rows"]
            self._ended = saved["ended"]
            self._diverged = saved["diverged"]
            self._best = saved["best"]
            self._half = saved["half"]
            if self._scores is not None:
                self._scores.restore(saved["scores"])

    @property
    def _last(self) -> bool:
        """True after the last step."""
        return self._step == self._request.steps

    def advance(self, bar: TrainingProgress) -> bool:
        """Take one step. Return False if no step is left, or every slot has ended.

        Args:
            bar: Progress that counts the step and reports the points of the curves.
        """
        if len(self._ended) == len(self._slots):
            return False
        if self._step < self._request.steps:
            self._learner.step()
            self._step += 1
            bar.advance()
            if self._scores is not None:
                self._scores.add(self._learner.params, last=self._last)
        if self._step in self._points:
            self._evaluate(bar)
        return True

    def _measured(self, params: stack.Parameters, *, whole: bool) -> _Measured:
        """Compute losses (nats) and accuracies of every slot on members, validation and test records."""
        data = self._request.dataset
        splits = {"train": data.pool, "validation": data.pool, "test": data.test}
        rows = {"train": self._parts["members"], "validation": self._parts["validation"], "test": None}
        measured = {}
        for name, split in splits.items():
            labels = None if name == "test" else self._labels
            loss, accuracy = stack.evaluate_split(
                self._learner.model, params, split, rows[name], labels, whole=whole
            )
            measured[f"{name}_loss"] = loss
            measured[f"{name}_accuracy"] = accuracy
        return measured

    def _evaluate(self, bar: TrainingProgress) -> None:
        """Extend the curves of all finite slots, and end those that are not finite or complete."""
        measured = self._measured(self._learner.params, whole=self._last or self._step == self._middle)
        shared = self._learner.metrics()
        finite = stack.finite_slots(self._learner.params)
        sound = [
            bool(flag and np.isfinite(loss))
            for flag, loss in zip(finite, measured["train_loss"], strict=True)
        ]
        if self._keeps_best:
            self._keep_best(measured, sound)
        if self._request.defense.keeps_best and self._last:
            measured = self._measured(self._params_at("best"), whole=True)
        for number in range(len(self._slots)):
            if number not in self._ended:
                self._extend(number, measured, shared, sound=sound[number])
        if self._request.on_rows is not None:
            self._request.on_rows(pd.DataFrame(self._rows, columns=[*CURVE_TYPES]))
        means = {name.replace("_", " "): float(value.mean()) for name, value in measured.items()}
        bar.report(self._slots, self._step, self._request.steps, {**means, **shared})

    def _extend(self, number: int, measured: _Measured, shared: dict[str, float], *, sound: bool) -> None:
        """Add a point to the curves of one slot, or end it if it is not finite or complete."""
        if sound:
            rows = self._point(number, self._step, measured, shared)
            if self._last and self._request.defense.keeps_best:
                rows.append((*rows[0][:3], "kept_step", float(self._best[number]["step"])))
            self._rows += rows
            if self._step == self._middle:
                self._half[number] = {"rows": rows, "params": self._copied(number)}
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
            self._ended[number] = self._learner.event(number, self._step).to_dict()

    def _point(self, number: int, step: int, measured: _Measured, shared: dict[str, float]) -> list[_Row]:
        """Return rows of one slot at one step: measured values, and its leakage so far if a bound holds."""
        slot = self._slots[number]
        values = {name: float(value[number]) for name, value in measured.items()} | shared
        if self._request.leakage_after is not None:
            leakage = self._request.leakage_after(self._learner.event(number, self._step))
            if leakage is not None:
                values["leakage"] = leakage
        return [(slot.replica, slot.learning_rate, step, metric, value) for metric, value in values.items()]

    def _copied(self, number: int) -> dict[str, Tensor]:
        """Copy a slot's current weights to the CPU."""
        return {name: value.detach()[number].cpu().clone() for name, value in self._learner.params.items()}

    def _keep_best(self, measured: _Measured, sound: Sequence[bool]) -> None:
        """Keep weights of slots with the best validation result so far. Of equal ones the first counts."""
        ranks = zip(measured["validation_accuracy"], -measured["validation_loss"], strict=True)
        for number, rank in enumerate((float(accuracy), float(loss)) for accuracy, loss in ranks):
            if not sound[number] or number in self._ended:
                continue
            if number not in self._best or rank > tuple(self._best[number]["rank"]):
                self._best[number] = {"rank": rank, "step": self._step, "params": self._copied(number)}

    def _params_at(self, length: str) -> stack.Parameters:
        """Return the weights of each slot's best or middle point, or its current ones if it has none."""
        params = {name: value.detach().clone() for name, value in self._learner.params.items()}
        points = {"best": self._best, "half": self._half}.get(length, {})
        for number, point in points.items():
            for name, value in point["params"].items():
                params[name][number] = value
        return params

    def state(self) -> dict[str, Any]:
        """Return all that the remaining steps depend on."""
        return {
            "step": self._step,
            "rows": self._rows,
            "ended": self._ended,
            "diverged": self._diverged,
            "best": self._best,
            "half": self._half,
            "learner": self._learner.state(),
            **({} if self._scores is None else {"scores": self._scores.state()}),
        }

    def result(self) -> dict[str, Any]:
        """Return weights, curves, events and divergence of the slots, with points of other lengths."""
        kept = [self._kept_weights(length) for length in self._request.lengths]
        return {
            "weights": {
                name: torch.stack([weights[name] for weights in kept], dim=1).flatten(0, 1)
                for name in kept[0]
            },
            "rows": self._rows,
            "ends": self._points_of_other_lengths(),
            "events": [self._ended[number] for number in range(len(self._slots))],
            "diverged": [number in self._diverged for number in range(len(self._slots))],
            **({} if self._scores is None else {"scores": self._scores.values()}),
        }

    def _kept_weights(self, length: str) -> dict[str, Tensor]:
        """Return the weights at the end of a length, on the CPU, NaN for slots without them."""
        keeps_best = length == "full" and self._request.defense.keeps_best
        slots = range(len(self._slots))
        sound = {"half": self._half, "best": self._best}.get(length, set(slots) - set(self._diverged))
        missing = [slot for slot in slots if slot not in sound]
        params = {
            name: value.cpu() for name, value in self._params_at("best" if keeps_best else length).items()
        }
        for value in params.values():
            value[missing] = torch.nan
        return params

    def _points_of_other_lengths(self) -> list[tuple[int, float, int, str, float, str]]:
        """Return rows of the middle and best point of each slot, if the request asks for these lengths."""
        ends = [(*row, "half") for point in self._half.values() for row in point["rows"]]
        if "best" in self._request.lengths and self._best:
            measured = self._measured(self._params_at("best"), whole=True)
            shared = self._learner.metrics()
            for slot, best in self._best.items():
                ends += [(*row, "best") for row in self._point(slot, best["step"], measured, shared)]
        return ends
