"""The training loop of every defense: stacks of slots one after another, with checkpoints."""

import gc
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import torch

from leakbound.accounting.event import PrivacyEvent
from leakbound.training.checkpoint import Checkpoint, fingerprint
from leakbound.training.progress_log import TrainingProgress
from leakbound.training.rates import chosen_rates, rates_of_lengths
from leakbound.training.request import Slot, TrainingRequest, TrainingResult
from leakbound.training.stack_training import CURVE_TYPES, Learner, StackTraining

logger = logging.getLogger("leakbound")
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
    stacks = _Stacks(request, learner, size)
    progress = TrainingProgress(request.slug)
    while stacks.remaining:
        if not stacks.train_next(progress):
            stacks.halve()
    return _result(request, stacks.finished)


class _Stacks:
    """Stacks of a run: the trained ones, and the one in training, which a checkpoint holds."""

    def __init__(self, request: TrainingRequest, learner: MakeLearner, size: int) -> None:
        self._request = request
        self._learner = learner
        self._halved = False
        identity = fingerprint(request) if request.checkpoint else ""
        self._checkpoint = Checkpoint(request.checkpoint, identity, request.config.checkpoint_seconds)
        saved = self._checkpoint.load() or {"size": size, "finished": [], "current": None}
        self._size: int = saved["size"]
        self._current: dict[str, Any] | None = saved["current"]
        self.finished: list[dict[str, Any]] = saved["finished"]

    @property
    def remaining(self) -> list[Slot]:
        """Slots that are not fully trained yet."""
        return self._request.slots[sum(len(stack["events"]) for stack in self.finished) :]

    def train_next(self, bar: TrainingProgress) -> bool:
        """Train the next stack to its end. Return False if memory does not hold it.

        Raises:
            torch.OutOfMemoryError: If memory does not hold one slot.
        """
        slots = self.remaining[: self._size]
        current = self._current
        self._current = None
        try:
            training = StackTraining(self._request, self._learner(self._request, slots), slots, current)
            while training.advance(bar):
                self._save_if_due(training)
            self.finished.append(training.result())
        except torch.OutOfMemoryError:
            if len(slots) == 1:
                raise
            return False
        self._save_if_due(None)
        return True

    def _save_if_due(self, training: StackTraining | None) -> None:
        """Save the finished stacks and the one in training, if it is time."""
        if self._checkpoint.due():
            current = None if training is None else training.state()
            self._checkpoint.save({"size": self._size, "finished": self.finished, "current": current})

    def halve(self) -> None:
        """Halve the number of slots in a stack, and free the memory of those that were tried."""
        tried = min(self._size, len(self.remaining))
        self._size = tried // 2
        logger.log(
            logging.INFO if self._halved else logging.WARNING,
            "%s: the GPU's memory does not hold %d slots side by side; they start again, %d at a time",
            self._request.slug,
            tried,
            self._size,
        )
        self._halved = True
        gc.collect()  # a learner and its captured step hold each other
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


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
