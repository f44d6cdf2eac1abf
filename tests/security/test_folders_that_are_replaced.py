"""``tools/keep.py --out`` replaces what it wrote, and never anything else."""

import subprocess
from pathlib import Path

import pytest

from replaced_folders import MANIFEST, ForeignFolderError, check_replaceable, replaced_folder
from test_kept_results import finish, keep

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def contents(folder: Path) -> dict[str, bytes]:
    """Name and bytes of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def foreign(kind: str) -> Path:
    """A folder that somebody may name by mistake, with a file that nobody else has."""
    folder = Path("mine")
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "thesis.txt").write_text("three years of work\n")
    if kind == "link to a folder":
        folder.rename("elsewhere")
        folder.symlink_to("elsewhere")
    if kind == "empty manifest":
        (folder / MANIFEST).touch()
    if kind == "link to a manifest":
        Path("list").touch()
        (folder / MANIFEST).symlink_to(Path("list").absolute())
    if kind == "results":
        return Path("results/shown")
    return folder


@pytest.mark.parametrize("kind", ["folder", "link to a folder", "empty manifest", "link to a manifest", "results"])
def test_folder_of_somebody_else_is_refused_and_keeps_every_file(tmp_path, kind):
    configfile = finish("digits", "digits")
    folder = foreign(kind)
    before = contents(tmp_path)
    with pytest.raises(ForeignFolderError, match=rf"{folder}: it .*missing, empty, or exactly as leakbound left it"):
        keep(configfile, "--out", folder)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("change", ["added", "edited", "linked"])
def test_file_that_came_into_our_own_folder_is_not_lost(tmp_path, change):
    configfile = finish("digits", "digits")
    words = (configfile, "--out", "kept")
    assert keep(*words)[0] == 0
    assert keep(*words)[0] == 0  # ours, so it is replaced
    if change == "added":
        Path("kept/notes.md").write_text("why seed 3 diverged\n")
    elif change == "edited":
        Path("kept/scoreboard.md").write_text("my remarks\n")
    else:
        Path("kept/scoreboard.md").unlink()
        Path("kept/scoreboard.md").symlink_to(tmp_path / "results/shown/scoreboard.md")
    before = contents(tmp_path)
    with pytest.raises(ForeignFolderError, match="notes.md" if change == "added" else "scoreboard.md"):
        keep(*words)
    assert contents(tmp_path) == before


def test_absent_and_empty_folders_are_filled_and_our_own_loses_what_is_stale():
    configfile = finish("digits", "digits")
    Path("empty").mkdir()
    for name in ("empty", "absent/deeper"):
        assert keep(configfile, "--out", name)[0] == 0
        assert Path(name, "claims.parquet").is_file()
    with replaced_folder(Path("empty")) as new:
        (new / "only").write_text("one\n")
    assert set(contents(Path("empty"))) == {"only", MANIFEST}


def test_manifest_can_be_checked_without_leakbound():
    assert keep(finish("digits", "digits"), "--out", "kept")[0] == 0
    subprocess.run(["sha256sum", "--check", "--strict", MANIFEST], cwd="kept", check=True, capture_output=True)


def test_kept_results_of_the_repository_are_as_leakbound_left_them():
    for folder in (ROOT / "results" / "reference").iterdir():
        check_replaceable(folder)


def test_folder_stays_as_it_was_if_the_next_one_fails():
    with replaced_folder(Path("kept")) as new:
        (new / "only").write_text("one\n")
    before = contents(Path.cwd())
    with pytest.raises(FileNotFoundError), replaced_folder(Path("kept")) as new:
        (new / "missing" / "only").write_text("another\n")
    assert contents(Path.cwd()) == before
