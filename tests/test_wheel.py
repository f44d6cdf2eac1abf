"""The wheel alone: built, unpacked into an empty folder, and used where nothing of the workflow can be imported."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROGRAM = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("mlflow", "opacus", "snakemake", "matplotlib", "datasets", "flwr", "lightning"):
            raise ModuleNotFoundError(name, name=name)

wheel, script = sys.argv[1:]
sys.path.insert(0, wheel)
sys.meta_path.insert(0, Absent())
import leakbound

assert leakbound.__file__.startswith(wheel), leakbound.__file__
names = {"__name__": "example"}
exec(open(script).read(), names)
assert names["main"](["--epochs", "2"]) > 0.5
from leakbound.registry import load

try:
    load("leakbound.training.dp.per_sample:train_per_sample", "DP-SGD")
except ModuleNotFoundError as error:
    assert str(error) == "DP-SGD: opacus is not installed: pip install 'leakbound[workflow]'", error
else:
    raise AssertionError("Opacus was found")
"""
"""Runs an example with the wheel of the first argument, as where the workflow was never installed."""


@pytest.mark.slow
def test_wheel_protects_a_loop_where_there_is_no_workflow(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip, offline = [sys.executable, "-m", "pip"], ["--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", tmp_path, source], check=True)
    (wheel,) = tmp_path.glob("leakbound-*.whl")
    assert wheel.stat().st_size < 2**20
    subprocess.run([*pip, "install", *offline, "--target", tmp_path / "wheel", wheel], check=True)
    empty = tmp_path / "empty"
    empty.mkdir()
    words = [sys.executable, "-c", PROGRAM, tmp_path / "wheel", ROOT / "examples/pytorch_cnn.py"]
    done = subprocess.run(words, cwd=empty, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "smallest valid bound" in done.stdout
    assert not list(empty.iterdir())
