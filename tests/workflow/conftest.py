"""A copy of the project in an empty folder, and a small configuration that runs its whole chain."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TINY = {
    "preset": "tiny",
    "replicas": 2,
    "datasets": {"digits": {"members": 120, "test": 120, "aux": 120}},
    "training": {"learning_rates": [0.03, 0.1], "search_rounds": 5, "evaluations": 2},
    "attacks": {
        "membership": {"epochs": 2, "learning_rates": [1e-3]},
        "model_inversion": {"iterations": 4, "tv_weights": [0.0], "checkpoints": 2},
        "gradient_inversion": {"images": 2, "tuning_images": 1, "iterations": 8, "tv_weights": [1e-2]},
    },
    "studies": {
        "capacity": {
            "datasets": ["digits"],
            "models": ["lenet"],
            "defenses": {"none": [], "natural": [4.0, 16.0], "white": [4.0], "personalized": [4.0]},
            "rounds": [20],
            "batch_sizes": [32],
            "attacks": ["membership", "model_inversion"],
        },
        "comparison": {
            "datasets": ["digits"],
            "models": ["lenet"],
            "defenses": {"none": [], "natural": [4.0, 16.0], "dpsgd": [1.0], "dppsac": [1.0]},
            "rounds": [20],
            "batch_sizes": [32],
            "attacks": ["membership", "model_inversion"],
        },
        "gradient_inversion": {
            "datasets": ["digits"],
            "models": ["lenet_sigmoid"],
            "defenses": {"none": [], "natural": [4.0], "white": [4.0]},
            "rounds": [0],
            "batch_sizes": [1],
            "attacks": ["gradient_inversion"],
        },
    },
    "illustrations": {
        "capacity_surface": {},
        "toy_example": {},
        "noisy_images": {"dataset": "digits", "levels": {"natural": [4.0, 16.0], "personalized": [4.0, 16.0]}},
        "compression": {"dataset": "digits", "levels": {"natural": [16.0]}},
        "weights": {},
        "shapes": {"dataset": "digits", "levels": {"natural": [4.0, 16.0]}},
    },
    "efficiency": {
        "dataset": "digits",
        "models": ["lenet"],
        "defenses": {"none": [], "natural": [4.0], "dpsgd": [1.0]},
        "steps": 2,
        "repeats": 2,
    },
    "tracking": {"uri": "sqlite:///results/mlflow.db"},
}


@dataclass(frozen=True)
class Project:
    """A copy of the project that may be edited and run."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results" / "tiny"

    def configure(self, config: dict) -> None:
        (self.folder / "config" / "tiny.yaml").write_text(yaml.safe_dump(config))

    def snakemake(
        self, *options: str, jobs: int = 2, configfile: str = "config/tiny.yaml"
    ) -> subprocess.CompletedProcess[str]:
        command = ["snakemake", "--configfile", configfile, "-j", str(jobs), *options]
        return subprocess.run(command, cwd=self.folder, env=self.environment(), capture_output=True, text=True)

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(self.folder / "src"),
            "XDG_CACHE_HOME": str(self.folder / ".cache"),
        }

    def planned(self, *targets: str, configfile: str = "config/tiny.yaml") -> dict[str, int]:
        """Jobs of each rule that a run would start now; empty if there is nothing to do."""
        found = self.snakemake("--quiet", "rules", "--dry-run", *targets, configfile=configfile)
        assert found.returncode == 0, found.stdout + found.stderr
        text = found.stdout + found.stderr
        if "Job stats:" not in text:
            return {}
        lines = text.split("Job stats:")[1].split("total")[0].splitlines()[3:]
        return {line.split()[0]: int(line.split()[1]) for line in lines if line.strip()}


def copied_project(folder: Path) -> Project:
    shutil.copy(ROOT / "environment.yml", folder)
    for name in ("src", "workflow", "config"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    project = Project(folder)
    project.configure(TINY)
    return project


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Project:
    """A project whose whole chain has run; tests that change it restore it."""
    project = copied_project(tmp_path_factory.mktemp("project"))
    result = project.snakemake()
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-10000:]
    return project


@pytest.fixture
def fresh(tmp_path) -> Project:
    """A project in which nothing has run."""
    return copied_project(tmp_path)
