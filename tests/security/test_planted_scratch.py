"""Another account plants, where a file is about to be written, what looks like the folder of a killed writer."""

import os
import subprocess
import sys

import pytest

from leakbound.storage.seals import sweep


@pytest.mark.parametrize("kind", ["lock", "folder"])
def test_links_planted_as_leftovers_make_no_file_elsewhere(tmp_path, kind):
    elsewhere, shared = tmp_path / "elsewhere", tmp_path / "shared"
    elsewhere.mkdir()
    shared.mkdir()
    if kind == "lock":
        (shared / ".out.abcdefgh").mkdir()
        (shared / ".out.abcdefgh" / ".lock").symlink_to(elsewhere / "made")
    else:
        (shared / ".out.abcdefgh").symlink_to(elsewhere)
    sweep(shared / "out")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_pipe_planted_as_the_lock_of_a_leftover_holds_nobody_up(tmp_path):
    (tmp_path / ".out.abcdefgh").mkdir()
    os.mkfifo(tmp_path / ".out.abcdefgh" / ".lock")
    code = "from pathlib import Path; from leakbound.storage.seals import sweep; sweep(Path('out'))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, timeout=60, check=True)
