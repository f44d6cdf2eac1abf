"""What ``docs/errata.md`` says is shown by a test is."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`", TEXT)
ENTRIES = re.split(r"^### ", TEXT, flags=re.M)[1:]


def defined_in(path: Path) -> set[str]:
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({path for path, _ in NAMED}))
def test_every_test_that_the_errata_name_exists(path):
    wanted = {name for other, name in NAMED if other == path}
    assert wanted <= defined_in(ROOT / path)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.split(".")[0])
def test_every_entry_says_what_is_printed_what_is_right_and_what_shows_it(entry):
    assert "Printed" in entry
    assert "Right:" in entry
    assert "Shown by: `tests/" in entry
    assert re.search(r"\((guarantee|cost|reading|print)\)", entry.splitlines()[0])


def test_the_errata_cover_every_paper():
    papers = {entry[0] for entry in ENTRIES}
    assert papers == {"A", "B", "C", "D"}
    assert all(name.startswith("tests/") for name in re.findall(r"`([^`]+)::", TEXT))


def test_every_figure_that_the_errata_name_is_in_the_catalogue():
    catalogue = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "config" / "figures").glob("*.yaml"))
    for paper, name in re.findall(r"`(zeng2022|wang2020|pmidp|beyond|tan2024)/([a-z0-9_]+)`", TEXT):
        assert re.search(rf"id: {name}\n\s+paper: {paper}\n", catalogue), f"{paper}/{name}"
