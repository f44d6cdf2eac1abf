"""Progress on standard error: a bar on a terminal, or lines in a log."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_PAUSE = 10.0  # seconds between two lines


@contextmanager
def counted(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show progress, and yield the function that advances it.

    Args:
        title: Description of the work.
        total: Number of things to do. If it is not known, only the time is shown.
    """
    if not sys.stderr.isatty():
        yield _in_lines(title, total)
        return
    from rich import progress
    from rich.console import Console

    columns = [progress.SpinnerColumn(), progress.TextColumn("{task.description}", markup=False)]
    columns += [progress.BarColumn(), *([progress.MofNCompleteColumn()] if total else [])]
    columns.append(progress.TimeElapsedColumn())
    with progress.Progress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(title, total=total)
        yield lambda count: shown.advance(task, count)


def _in_lines(title: str, total: int | None) -> Callable[[int], None]:
    """Return a function that writes progress as lines of a log, at most one in ten seconds."""
    done = 0
    began = last = time.monotonic()

    def report(count: int) -> None:
        nonlocal done, last
        done += count
        if (now := time.monotonic()) - last >= _PAUSE:
            sys.stderr.write(f"{title}: {done}{f' of {total}' if total else ''}, {now - began:.0f} s\n")
            last = now

    return report
