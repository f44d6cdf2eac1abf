"""Progress on a terminal, on standard error; nothing anywhere else."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Function that moves a bar on by some things; of work whose amount is not known (None) it only shows the time."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn()]
    with Progress(
        *columns, *([MofNCompleteColumn()] if total else []), TimeElapsedColumn(), console=Console(stderr=True)
    ) as shown:
        task = shown.add_task(title, total=total)
        yield lambda count: shown.advance(task, count)
