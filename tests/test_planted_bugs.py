import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import planted_bugs

SOURCES = planted_bugs.ROOT / "src/leakbound"


@pytest.mark.parametrize("bug", planted_bugs.BUGS, ids=lambda bug: bug.name)
def test_the_place_of_every_planted_bug_is_still_there_once(bug):
    assert (SOURCES / bug.file).read_text().count(bug.old) == 1


def test_planted_bugs_have_names_of_their_own_and_tests_that_exist():
    assert max(Counter(bug.name for bug in planted_bugs.BUGS).values()) == 1
    for bug in planted_bugs.BUGS:
        path, _, name = bug.test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (planted_bugs.ROOT / path).read_text(), bug.test


@pytest.mark.slow
def test_every_planted_bug_is_caught_by_its_test():
    done = subprocess.run([sys.executable, Path(planted_bugs.__file__)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_bug_that_no_test_notices_is_told(tmp_path):
    """A change of nothing survives, and a text that is not there is no bug."""
    bug = planted_bugs.BUGS[0]
    (tmp_path / "src/leakbound" / bug.file).parent.mkdir(parents=True)
    (tmp_path / "src/leakbound" / bug.file).write_text("nothing of the kind\n")
    assert "its place in channels/sampling.py is gone" in planted_bugs._outcome(bug, tmp_path)
