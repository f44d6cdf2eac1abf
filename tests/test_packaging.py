"""The ways to install the project cannot drift apart."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.version import Version

from leakbound import registry
from leakbound.accounting import dp

ROOT = Path(__file__).parents[1]
PROJECT, BUILD = (tomllib.loads((ROOT / "pyproject.toml").read_text())[key] for key in ("project", "build-system"))
PINNED = re.compile(r"^([a-z0-9.-]+)==([^\s+]+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.M)


def lock(name: str = "main") -> dict[str, str]:
    """Package to version of a lock, in which nothing may stand but pins, each with a hash."""
    text = (ROOT / f"requirements/{name}.lock").read_text()
    assert PINNED.sub("", text) == "", f"requirements/{name}.lock holds something without a hash"
    return {package.replace(".", "-"): version for package, version, _ in PINNED.findall(text)}


def name_of(requirement: str) -> str:
    """Normalised name of a requirement's package."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0]).lower()


def test_conda_environment_holds_workflow_and_tests_in_the_versions_of_the_locks():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    python, pip, section = environment["dependencies"]
    assert [python, pip] == ["python=" + PROJECT["requires-python"].removeprefix(">="), "pip"]
    pins, project = section["pip"]  # and no index: whoever calls says where packages come from
    assert pins == "--constraint requirements/pins.txt"
    assert project == "--editable .[workflow,dev,server]"
    pinned = (line.split("==") for line in (ROOT / "requirements/pins.txt").read_text().splitlines())
    assert {package.replace(".", "-"): version for package, version in pinned} == lock() | lock("torch")


def test_locks_pin_every_dependency_exactly_and_agree_on_what_they_share():
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *extras["workflow"], *extras["dev"], *extras["server"]]
    assert {name_of(requirement) for requirement in wanted} <= {*lock(), *lock("torch")}
    assert "torch" not in lock() | lock("flower")
    assert lock("build").items() <= lock().items()
    assert BUILD["requires"] == [f"setuptools=={lock('build')['setuptools']}"]
    assert lock("cuda").keys().isdisjoint(lock() | lock("flower"))


def test_library_takes_ranges_and_the_locks_lie_inside_them():
    locked = lock() | lock("torch")
    page = (ROOT / "docs/installation.md").read_text()
    for requirement in PROJECT["dependencies"]:
        found = re.fullmatch(r"([a-z0-9-]+)>=([\d.]+)", requirement)
        assert found, f"{requirement}: other packages ask for other versions, so give a lower bound that was tried"
        name, least = found.groups()
        assert Version(least) <= Version(locked[name])
        assert re.search(rf"^\| {name} \| {re.escape(least)}[. |]", page, re.M), (
            f"docs/installation.md lacks {requirement}"
        )


def test_locks_of_frameworks_pin_their_extra_and_what_differs():
    for name in ("flower", "frameworks"):
        assert {name_of(requirement) for requirement in PROJECT["optional-dependencies"][name]} <= lock(name).keys()
    assert not lock("flower").items() & lock().items()  # but older versions of what the rest uses
    assert lock("frameworks").keys().isdisjoint(lock() | lock("torch"))
    assert {"sphinx", "furo", "myst-parser"} <= lock("site").keys()


def test_environment_in_a_folder_with_an_umlaut_starts_in_every_locale(tmp_path):
    """Python reads the file of an editable installation in the locale's encoding, and LC_ALL=C knows no umlaut."""
    home = tmp_path / "Grüße"
    (home / "src/leakbound").mkdir(parents=True)
    (home / "src/leakbound/__init__.py").touch()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=home, check=True)
    (packages,) = home.glob(".venv/lib/python*/site-packages")
    (packages / "__editable__.leakbound-1.pth").write_text(f"{home}/src\n", encoding="utf-8")
    shutil.copytree(ROOT / "requirements", home / "requirements")
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, home)
    recipe = subprocess.run(["make", "-n", "-B", ".venv/ready"], cwd=home, capture_output=True, text=True, check=True)
    (after,) = re.findall(r"pip install [^\n]* -e \.\n(.*?)touch", recipe.stdout, re.S)
    subprocess.run(after, shell=True, cwd=home, check=True)
    started = [".venv/bin/python", "-c", "import leakbound; print(ascii(leakbound.__file__))"]
    done = subprocess.run(started, cwd=home, env={"LC_ALL": "C"}, capture_output=True, text=True)
    assert (done.returncode, "leakbound/__init__.py" in done.stdout) == (0, True), done.stderr


def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch):
    (tmp_path / "needs_mlflow.py").write_text("import mlflow.tracking")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [one for one in sys.modules if one.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ModuleNotFoundError, match=r"^plot 'x': mlflow is not installed: pip install .*\[workflow\]"):
        registry.load_attribute("needs_mlflow:anything", "plot 'x'")
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.setitem(sys.modules, "opacus.accountants", None)
    with pytest.raises(ModuleNotFoundError, match=r"opacus, which is not installed: pip install .*\[workflow\]"):
        dp._history_epsilon([(1.0, 0.1, 10)], 1e-5, "rdp")


def test_container_copies_what_is_there_and_uses_the_python_of_the_project():
    lines = (ROOT / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert {"src", "pyproject.toml", "workflow", "config", "requirements"} <= {*copied}
    assert [name for name in copied if not (ROOT / name).exists()] == []
    (image,) = [line for line in lines if line.startswith("FROM ")]
    assert image.endswith(f"/python:{PROJECT['requires-python'].removeprefix('>=')}-slim")
    users = [line.removeprefix("USER ") for line in lines if line.startswith("USER ")]
    assert users == ["leakbound"]
    assert lines.index("USER leakbound") > max(place for place, line in enumerate(lines) if line.startswith("RUN "))
    assert all("--require-hashes" in part or "--no-deps" in part for part in " ".join(lines).split("pip install")[1:])


def test_conda_recipe_agrees_with_the_project():
    recipe = yaml.safe_load((ROOT / "requirements/recipe.yaml").read_text())
    assert recipe["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    python, *needs = recipe["requirements"]["run"]
    assert python == f"python {PROJECT['requires-python']}"
    assert [need.replace(" ", "").replace("pytorch", "torch") for need in needs] == PROJECT["dependencies"]
    assert recipe["build"]["python"]["entry_points"] == [f"leakbound = {PROJECT['scripts']['leakbound']}"]
    assert recipe["about"]["license"] == PROJECT["license"]
