"""Progress of a training: a bar on a terminal, plain lines in a log."""

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from leakbound.training.request import Slot

logger = logging.getLogger("leakbound")


class TrainingProgress:
    """Counts steps and reports at the points of the curves.

    Args:
        title: Name of the run.
        done: Number of steps done before.
        shown: Function that moves a bar by one step.
    """

    def __init__(self, title: str, done: int, shown: Callable[[], None] = lambda: None) -> None:
        self._title = title
        self._done = done
        self._shown = shown
        self._last = (time.monotonic(), done)

    def advance(self) -> None:
        """Count a step."""
        self._done += 1
        self._shown()

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


@contextmanager
def progress(title: str, total: int, done: int) -> Iterator[TrainingProgress]:
    """Show progress over ``total`` steps, from ``done`` on, as a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield TrainingProgress(title, done)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with RichProgress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, completed=done)
        yield TrainingProgress(title, done, lambda: bar.advance(task))
