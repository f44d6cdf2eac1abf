"""Progress of a training: a bar on a terminal, plain lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger("leakbound")


class Progress:
    """Counts steps and reports at the points of the curves.

    Args:
        title: Name of the run.
        done: Steps done before.
    """

    def __init__(self, title: str, done: int) -> None:
        self._title = title
        self._done = done
        self._last = (time.monotonic(), done)

    def advance(self, steps: int = 1) -> None:
        """Count steps."""
        self._done += steps

    def report(self, replicas: range, step: int, rounds: int, metrics: dict[str, float]) -> None:
        """Write one line to the log: step, means over the replicas, speed since the last line."""
        now = time.monotonic()
        before, done = self._last
        speed = (self._done - done) / max(now - before, 1e-9)
        self._last = (now, self._done)
        names = f"replica {replicas[0]}" if len(replicas) == 1 else f"replicas {replicas[0]} to {replicas[-1]}"
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
        logger.info("%s, %s: step %d of %d: %s; %.0f steps/s", self._title, names, step, rounds, values, speed)


class _Bar(Progress):
    """The same, with a bar."""

    def __init__(self, title: str, done: int, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        super().__init__(title, done)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = RichProgress(*columns, console=Console(stderr=True))
        self._task = self.bar.add_task(title, total=total, completed=done)

    def advance(self, steps: int = 1) -> None:
        """Count steps and move the bar."""
        super().advance(steps)
        self.bar.update(self._task, advance=steps)


@contextmanager
def progress(title: str, total: int, done: int = 0) -> Iterator[Progress]:
    """Progress of ``total`` steps, of which ``done`` were done before; a bar if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield Progress(title, done)
        return
    bar = _Bar(title, done, total)
    with bar.bar:
        yield bar
