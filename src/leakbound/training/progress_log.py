"""Progress of a training: lines in the log."""

import logging
import time
from collections.abc import Sequence

from leakbound.training.request import Slot

logger = logging.getLogger("leakbound")


class TrainingProgress:
    """Counts steps and reports at the points of the curves.

    Args:
        title: Name of the run.
    """

    def __init__(self, title: str) -> None:
        self._title = title
        self._done = 0
        self._last = (time.monotonic(), 0)

    def advance(self) -> None:
        """Count a step."""
        self._done += 1

    def report(self, slots: Sequence[Slot], step: int, rounds: int, metrics: dict[str, float]) -> None:
        """Write one line to the log: step, means over the slots, speed since the last line."""
        now = time.monotonic()
        before, done = self._last
        speed = (self._done - done) / max(now - before, 1e-9)
        self._last = (now, self._done)
        ends = slots[:1] if len(slots) == 1 else (slots[0], slots[-1])
        names = " to ".join(f"replica {slot.replica} at rate {slot.learning_rate:g}" for slot in ends)
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        logger.info(
            "%s, %s: step %d of %d: %s; %.0f steps/s", self._title, names, step, rounds, values, speed
        )
