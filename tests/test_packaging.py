"""The ways to install the project cannot drift apart."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text().splitlines()


def name_of(requirement: str) -> str:
    """Normalised name of a requirement's package."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0]).lower()


def test_conda_environment_installs_the_lock_and_nothing_else():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, packages = environment["dependencies"]
    assert (python, pip) == ("python=" + PROJECT["requires-python"].removeprefix(">="), "pip")
    assert packages == {"pip": ["-r requirements.lock", "-e ."]}


def test_lock_pins_every_dependency_exactly():
    pinned = {name_of(line) for line in LOCK if re.fullmatch(r"[A-Za-z0-9._-]+==[^\s+]+", line)}
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["dev"], *extras["server"]]
    assert {name_of(requirement) for requirement in wanted} <= pinned
    assert LOCK[0] == "-c constraints-cuda.txt"
    assert all("==" in line for line in LOCK[1:])


def test_lock_names_no_machine():
    text = (ROOT / "requirements.lock").read_text() + (ROOT / "constraints-cuda.txt").read_text()
    assert "+cpu" not in text
    assert "://" not in text
    assert "--" not in text


def test_flower_lock_pins_the_extra_and_names_no_machine():
    lines = (ROOT / "requirements-flower.lock").read_text().splitlines()
    assert lines[0] == "-c constraints-cuda.txt"
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^\s+:]+", line) for line in lines[1:])
    wanted = PROJECT["optional-dependencies"]["flower"] + [
        requirement for requirement in PROJECT["dependencies"] if name_of(requirement) in ("torch", "numpy", "pydantic")
    ]
    assert {name_of(requirement) for requirement in wanted} <= {name_of(line) for line in lines[1:]}


def test_readme_commands_are_make_targets():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    used = set(re.findall(r"^\s*make ([a-z-]+)", (ROOT / "README.md").read_text(), re.M))
    assert {"run", "test"} <= used <= targets


def test_example_of_the_readme_runs_as_written(capsys):
    text = (ROOT / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.S)
    exec(compile(example, "README.md", "exec"), {})
    variance, capacity, error = (float(line) for line in capsys.readouterr().out.split())
    assert variance > 0
    assert 16 * (1 - 1e-9) <= capacity <= 16
    assert 0 < error < 1
