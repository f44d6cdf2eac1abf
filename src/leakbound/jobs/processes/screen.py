"""Terminal output of a Snakemake run: one line of progress, and all errors and warnings."""

import logging
import sys
import time
from io import TextIOBase
from typing import cast

_ROUTINE = {"JOB_INFO", "JOB_STARTED", "JOB_FINISHED", "GROUP_INFO", "SHELLCMD", "PROGRESS"}
_CHATTER = ("Select jobs to execute", "Execute ")
_CLEAR = "\r\x1b[K"
_STEP = 10  # percent between two lines without a terminal


class Screen(logging.Filter):
    """Filter of Snakemake's messages: jobs that succeed become a line of progress, all other messages pass.

    On a terminal the line is overwritten. Elsewhere a line is written after each tenth of the jobs.

    Args:
        stream: Stream of the messages.
    """

    def __init__(self, stream: TextIOBase | None = None) -> None:
        super().__init__()
        self._stream = stream or cast(TextIOBase, sys.stderr)
        self._began = time.monotonic()
        self._shown = 0
        self._open = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for messages that are shown unchanged.

        Args:
            record: Message of Snakemake.
        """
        event = getattr(getattr(record, "event", None), "name", "")
        if event == "PROGRESS":
            self._progress(int(getattr(record, "done", 0)), int(getattr(record, "total", 0)))
        if event in _ROUTINE or (record.levelno <= logging.INFO and record.getMessage().startswith(_CHATTER)):
            return False
        if self._open:
            self._stream.write(_CLEAR)
            self._open = False
        return True

    def _progress(self, done: int, total: int) -> None:
        """Write how many jobs are done."""
        share = 100 * done // total if total else 100
        seconds = int(time.monotonic() - self._began)
        line = f"{done} of {total} jobs ({share} %), {seconds // 60}:{seconds % 60:02d}"
        if self._stream.isatty():
            self._open = done < total
            self._stream.write(f"{_CLEAR}{line}" + ("" if self._open else "\n"))
        elif share >= self._shown + _STEP:
            self._shown = share - share % _STEP
            self._stream.write(f"{line}\n")
        self._stream.flush()
