"""The wheel alone: built, unpacked into an empty folder, and used where nothing of the workflow can be imported."""

import math
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from leakbound import storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.runs import stated_bounds

ROOT = Path(__file__).parents[1]
EXTRA = (
    *("datasets", "flask", "flwr", "lightning", "matplotlib", "mlflow", "opacus", "pynvml", "skimage", "snakemake"),
    *("sqlalchemy", "transformers", "yaml"),
)
"""What only the extra installs. Torch needs networkx, and the command line's typer pydantic."""


def without(*names: str) -> str:
    """Code that takes the wheel of the first argument, where no package of some names was ever installed."""
    return f"""
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(name, name=name)

wheel = sys.argv.pop(1)
sys.path.insert(0, wheel)
sys.meta_path.insert(0, Absent())
import leakbound

assert leakbound.__file__.startswith(wheel), leakbound.__file__
"""


PROGRAM = f"""{without(*EXTRA, "pydantic")}
names = {{"__name__": "example"}}
exec(open(sys.argv[1]).read(), names)
assert names["main"](["--epochs", "2"]) > 0.5
from leakbound.registry import load_attribute

for path in ("leakbound_lab.training.per_sample:train_per_sample", "leakbound_lab.config.reading:load"):
    try:
        load_attribute(path, "part")
    except ModuleNotFoundError as error:
        assert str(error).endswith("is not installed: pip install 'leakbound[workflow]'"), error
    else:
        raise AssertionError(path)
assert not {{"leakbound_lab.steps", "leakbound_lab.attacks"}} & {{*sys.modules}}
"""
"""Runs an example."""
COMMAND = f"""{without(*EXTRA)}
from leakbound.commands.command_line import main

sys.argv[0] = "leakbound"
main()
"""
"""Calls the command line."""


NOTEBOOK = """
import json, sys

wheel, path = sys.argv[1:]
sys.path.insert(0, wheel)
cells = [cell for cell in json.load(open(path))["cells"] if cell["cell_type"] == "code"]
assert "%pip install" in "".join(cells[0]["source"])
names = {"__name__": "__main__"}
for cell in cells:
    text = "".join("    pass\\n" if line.lstrip().startswith("%pip") else line for line in cell["source"])
    exec(compile(text, path, "exec"), names)
assert names["__builtins__"] and sys.modules["leakbound"].__file__.startswith(wheel)
"""
"""Runs the code of a notebook with the wheel of the first argument."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, unpacked into a folder."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    pip, offline = [sys.executable, "-m", "pip"], ["--no-deps", "--no-index", "--quiet"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", folder, source], check=True)
    (built,) = folder.glob("leakbound-*.whl")
    assert built.stat().st_size < 2**20
    subprocess.run([*pip, "install", *offline, "--target", folder / "wheel", built], check=True)
    return folder / "wheel"


def run(folder, program, *words) -> str:
    """Output of a program in an empty folder, in which it must leave nothing."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MPLBACKEND": "Agg"}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())
    return done.stdout


@pytest.mark.slow
def test_wheel_protects_a_loop_where_there_is_no_workflow(wheel, tmp_path):
    assert "smallest valid bound" in run(tmp_path, PROGRAM, wheel, ROOT / "examples/pytorch_cnn.py")


@pytest.mark.slow
def test_commands_of_the_library_run_where_there_is_no_workflow(wheel, tmp_path):
    rng = np.random.default_rng(0)
    for name in ("mine", "public"):
        np.savez(tmp_path / f"{name}.npz", records=rng.normal(size=(300, 6)), labels=rng.integers(0, 2, 300))
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "0.386" in run(empty, COMMAND, wheel, "risk", "--nats", "2", "--records", "1000")
    target = ("--target-leakage", "4", "--out", tmp_path / "noisy")
    said = run(empty, COMMAND, wheel, "protect", tmp_path / "mine.npz", "--public", tmp_path / "public.npz", *target)
    assert "nats" in said
    assert len(np.load(tmp_path / "noisy/mine.npz")["records"]) == 300
    event = PrivacyEvent("channel", "shuffled", 400, 32, 300, 24, shape="natural", capacity=4.0, noise="fresh")
    stated = stated_bounds([event], np.ones(3), labels=math.log(10))
    storage.write_json(tmp_path / "provenance.json", {"events": [event.to_dict()], "leakage": stated})
    assert "nats" in run(empty, COMMAND, wheel, "account", tmp_path / "provenance.json")
    assert "audit" in run(empty, COMMAND, wheel, "--help")
    with pytest.raises(AssertionError, match=r"is not installed: pip install 'leakbound\[workflow\]'"):
        run(empty, COMMAND, wheel, "plan")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["protect_your_loop", "audit_it"])
def test_hosted_notebooks_run_with_the_wheel_alone(wheel, tmp_path, name):
    assert "nats" in run(tmp_path, NOTEBOOK, wheel, ROOT / f"examples/notebooks/{name}.ipynb")


def test_hosted_notebooks_are_those_of_the_pages():
    program = runpy.run_path(str(ROOT / "docs/hosted.py"))
    names = {path.stem for path in (ROOT / "examples/notebooks").glob("*.ipynb")}
    assert names == {path.stem for path in program["PAGES"]}
    for page in program["PAGES"]:
        kept = (ROOT / f"examples/notebooks/{page.stem}.ipynb").read_text(encoding="utf-8")
        assert kept == program["notebook"](page.read_text(encoding="utf-8")), "python docs/hosted.py"
        assert not any(word in kept for word in ("LEAKBOUND_DATA", "results/", "../"))
