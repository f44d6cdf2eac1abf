"""Tables and progress on a terminal, for people."""

import io
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

_PAUSE = 10.0  # seconds between two lines


def text_table(rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Align rows in columns, whatever the width of the terminal.

    Args:
        rows: Cells of each row, the headings first.
        left: Number of columns that are aligned to the left. The others are aligned to the right.

    Returns:
        One line for each row.
    """
    from rich.console import Console
    from rich.table import Table

    headings, *cells = rows
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for row in cells:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=10_000, markup=False, emoji=False, highlight=False, force_terminal=False).print(
        table
    )
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
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
    with progress.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


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
