"""Tables for people have the columns that rich gives them, without its slow import."""

import io
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console
from rich.table import Table

from leakbound.commands.terminal import text_table

PIECES = ["a", "9", " ", "κ", "ε", "日", "e\u0301", "²", "[b]", "∞", "−", ":smile:"]
CELLS = some.lists(some.sampled_from(PIECES), max_size=9).map(lambda pieces: "".join(pieces).strip())


def by_rich(rows, left: int) -> str:
    """The same table, of any cells without line breaks."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, heading in enumerate(rows[0]):
        table.add_column(heading, justify="left" if place < left else "right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*row)
    text = io.StringIO()
    Console(file=text, width=10_000, markup=False, emoji=False, highlight=False).print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


@given(
    some.integers(1, 4).flatmap(lambda width: some.lists(some.lists(CELLS, min_size=width, max_size=width), min_size=1))
)
def test_a_table_is_aligned_as_rich_aligns_it(rows):
    for left in range(len(rows[0]) + 1):
        assert text_table(rows, left) == by_rich(rows, left)


def test_risk_loads_none_of_the_slow_libraries_that_it_does_not_need():
    code = (
        "import sys; from leakbound.commands.command_line import app; "
        "app(['risk', '--nats', '2', '--records', '1000'], standalone_mode=False); "
        "print({'rich', 'scipy', 'torch', 'pandas'} & {*sys.modules}, file=sys.stderr)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr == "set()\n"
