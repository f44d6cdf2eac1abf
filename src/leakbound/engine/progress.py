"""Progress of a calibration: a bar on a terminal, elsewhere a line now and then."""

import sys
import time
from collections.abc import Callable

Stage = Callable[[str, float], None]
"""Called when a stage begins: its name, and the share of the work that is done."""
_LARGE = 500  # values of a record, from which calibration takes seconds or more
_WIDTH = 24  # of the bar, in characters
_EVERY = 10.0  # seconds from line to line where there is no terminal


class Progress:
    """Show the stages of one calibration on standard error.

    Args:
        records: Number of records.
        values: Of each.
        shown: Whether anything is shown. None for records of 500 values and more.
    """

    def __init__(self, records: int, values: int, shown: bool | None = None) -> None:
        self._shown = values >= _LARGE if shown is None else shown
        self._what = f"leakbound: calibrating to {records} records of {values} values"
        self._began, self._last = time.monotonic(), 0.0
        self._terminal = sys.stderr.isatty()

    def __call__(self, stage: str, done: float) -> None:
        """Show that a stage begins.

        Args:
            stage: Its name.
            done: Share of the work before it, in [0, 1], and 1 at the end.
        """
        now = time.monotonic()
        if not self._shown:
            return
        seconds = f"{now - self._began:.0f} s"
        if self._terminal:
            bar = "#" * round(_WIDTH * done)
            end = "\n" if done >= 1.0 else ""
            sys.stderr.write(f"\r\x1b[K{self._what} [{bar:<{_WIDTH}}] {stage}, {seconds}{end}")
            sys.stderr.flush()
        elif not self._last or now - self._last >= _EVERY:
            self._last = now
            sys.stderr.write(f"{self._what}: {stage}, {done:.0%} done after {seconds}\n")


def silent(stage: str, done: float) -> None:
    """Show nothing."""
