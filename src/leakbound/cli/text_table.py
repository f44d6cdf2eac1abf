"""Tables as text, for people."""

import io
from collections.abc import Iterable, Sequence


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
