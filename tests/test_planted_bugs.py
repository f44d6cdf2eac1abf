import os
import re
import subprocess
import sys
from collections import Counter

import pytest

import planted_bugs


def test_the_place_of_every_planted_bug_is_there_once_and_so_is_its_test():
    sources = planted_bugs.texts(planted_bugs.ROOT / "src", "*.py")
    counts = {name: len(planted_bugs.places(old, sources)) for name, (old, _, _) in planted_bugs.BUGS.items()}
    assert {name: count for name, count in counts.items() if count != 1} == {}
    tests = planted_bugs.texts(planted_bugs.ROOT / "tests", "test_*.py")
    names = Counter(name for text in tests.values() for name in re.findall(r"^def (\w+)\(", text, re.MULTILINE))
    assert [test for _, _, test in planted_bugs.BUGS.values() if names[test.partition("[")[0]] != 1] == []


@pytest.mark.slow
def test_planted_bugs_are_caught_by_their_tests():
    words = [sys.executable, planted_bugs.__file__, "--passed"]  # what they pass without bugs, this suite shows
    words += [] if "THOROUGH" in os.environ else ["--third"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    others = [line for line in done.stdout.splitlines() if " caught " not in line]  # a log that is cut still has them
    assert done.returncode == 0, "\n".join([*others, done.stderr])


def test_a_bug_whose_place_is_gone_is_told(tmp_path):
    assert "its place is gone" in planted_bugs._outcome("old", "new", "", tmp_path)
