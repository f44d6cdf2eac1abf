import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "prepare": ("leakbound.cli.data:prepare", "leakbound.datasets.digits"),
    "calibrate": ("leakbound.cli.channels:calibrate", "leakbound.channels.shapes"),
    "train": ("leakbound.cli.training:train", "leakbound.models.lenet"),
    "attack": ("leakbound.cli.attacks:attack", "leakbound.attacks.membership"),
    "plot": ("leakbound.cli.figures:plot", "leakbound.figures.plots.lines"),
}


@pytest.fixture
def copy(tmp_path):
    """A copy of the package that may be edited, and what fingerprints it has."""
    source = tmp_path / "src"
    subprocess.run(["cp", "-r", str(ROOT / "src"), str(source)], check=True)
    return source / "leakbound"


def fingerprints(package: Path) -> dict[str, str]:
    """Fingerprint of each command as a fresh process sees it."""
    lines = "; ".join(f"print(code_fingerprint({c!r}, {m!r}))" for c, m in COMMANDS.values())
    script = f"from leakbound.fingerprint import code_fingerprint; {lines}"
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        check=True,
        cwd=package,
    )
    return dict(zip(COMMANDS, found.stdout.split(), strict=True))


def edit(path: Path, addition: str) -> None:
    path.write_text(path.read_text() + addition)


def test_comments_and_docstrings_change_no_fingerprint(copy):
    before = fingerprints(copy)
    for path in copy.rglob("*.py"):
        edit(path, "\n# a remark\n")
    shapes = copy / "channels" / "shapes.py"
    shapes.write_text(shapes.read_text().replace('"""', '"""Said otherwise. ', 1))
    assert fingerprints(copy) == before


@pytest.mark.parametrize(
    ("edited", "reached"),
    [
        ("gaussian.py", {"calibrate", "train", "attack"}),
        ("datasets/digits.py", {"prepare"}),
        ("training/loop.py", {"train", "attack"}),
        ("attacks/membership.py", {"attack"}),
        ("figures/style.py", {"plot"}),
        ("storage.py", {"prepare", "calibrate", "train", "attack", "plot"}),
        ("studies.py", set()),
        ("tracking/store.py", set()),
        ("registry.py", set()),
    ],
)
def test_edit_changes_the_fingerprints_of_what_reaches_it(copy, edited, reached):
    before = fingerprints(copy)
    edit(copy / edited, "\n_ADDED = 1\n")
    after = fingerprints(copy)
    assert {name for name in COMMANDS if after[name] != before[name]} == reached


def test_edit_of_one_command_leaves_its_neighbours_alone(copy):
    before = fingerprints(copy)
    path = copy / "cli" / "data.py"
    path.write_text(path.read_text().replace("began = time.time()", "began = time.time() + 0", 1))
    after = fingerprints(copy)
    assert {name for name in COMMANDS if after[name] != before[name]} == {"prepare"}
