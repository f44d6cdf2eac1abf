"""Scripts of what other libraries do: all have the form that docs/real_things.md promises, and a row there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "findings").iterdir())
FIELDS = ("Expected", "Seen", "Versions", "Date", "Means", "Source")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_finding_pins_what_it_installs_cleans_up_and_runs_without_leakbound(path):
    text = path.read_text("utf-8")
    assert path.suffix == ".sh"
    assert path.stat().st_mode & 0o111
    assert text.startswith("#!/usr/bin/env bash\n# Expected: ")
    head, code = text.split("set -euo pipefail\n", 1)
    assert re.findall(r"^# ([A-Z]\w+): ", head, re.MULTILINE) == list(FIELDS)
    assert re.search(r"^# Date: +20\d\d-\d\d-\d\d$", head, re.MULTILINE)
    assert "folder=$(mktemp -d)\ntrap 'rm -rf \"$folder\"' EXIT\n" in code
    assert "leakbound" not in code
    for line in re.findall(r"pip install (.*)$", code, re.MULTILINE):
        packages = [word for word in line.split() if not word.startswith("-")]
        assert packages, line
        assert all(re.fullmatch(r"[\w.-]+==[\w.]+", package) for package in packages), line


def test_each_finding_has_one_row_with_the_versions_that_it_installs():
    page = (ROOT / "docs/real_things.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `(\w+\.sh)` \| (.*?) \|", page, re.MULTILINE))
    assert sorted(rows) == [path.name for path in SCRIPTS]
    for path in SCRIPTS:
        pinned = set(re.findall(r"([\w.-]+)==([\w.]+)", path.read_text("utf-8")))
        told = set(re.findall(r"([\w.-]+) (\d[\w.]*)", rows[path.name]))
        assert told, path.name
        assert told <= pinned, path.name
