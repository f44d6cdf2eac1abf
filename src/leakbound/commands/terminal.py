"""Tables and progress on a terminal, for people."""

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
    listed = [[(cell, _width(cell)) for cell in row] for row in rows]
    widths = [max(width for _, width in column) for column in zip(*listed, strict=True)]
    lines = []
    for row in listed:
        blanks = [" " * (widest - width) for (_, width), widest in zip(row, widths, strict=True)]
        cells = [
            cell + blank if place < left else blank + cell
            for place, ((cell, _), blank) in enumerate(zip(row, blanks, strict=True))
        ]
        lines.append("  ".join(cells).rstrip() + "\n")
    return "".join(lines)


def _width(cell: str) -> int:
    """Return the columns of a terminal that a text takes, of which some characters take two and others none."""
    if cell.isascii():
        return len(cell)
    from rich.cells import cell_len  # slow import

    return cell_len(cell)


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
