"""Copies of the project in empty folders, and two configurations that run its whole chain on little data."""

import re
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml
from project_copy import copied_project, environment

from studies import study

WHOLE = {
    "preset": "tiny",
    "replicas": 2,
    "datasets": {"digits": {"members": 120, "pool": 300, "test": 120, "aux": 120}},
    "training": {"learning_rates": [0.03, 0.1], "evaluations": 2},
    "attacks": {
        "membership": {"epochs": 2, "learning_rates": [1e-3], "references": 2, "draws": 1},
        "model_inversion": {"iterations": 4, "tv_weights": [0.0]},
        "gradient_inversion": {
            **{"images": 2, "iterations": 8, "tv_weights": [1e-2], "search_iterations": 8},
            "estimator": {"steps": 4, "width": 4, "batch_size": 8},
        },
    },
    "studies": {
        "capacity": study(
            {"none": [], "natural": [4.0, 16.0], "white": [4.0], "personalized": [4.0]},
            ["membership", "model_inversion"],
        ),
        "comparison": study(
            {
                **{"none": [], "early_stopping": [], "stopped": [0.5], "clipping": [0.0]},
                **{"natural": [4.0, 16.0], "dpsgd": [1.0], "dppsac": [1.0]},
            },
            ["membership", "model_inversion"],
            rates="all",
            lengths="all",
        ),
        "gradient_inversion": study(
            {"none": [], "natural": [4.0], "white": [4.0]},
            ["gradient_inversion"],
            models=["lenet_sigmoid"],
            rounds=0,
            batch_size=1,
        ),
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
        "steps": 8,
        "repeats": 2,
    },
    "tracking": {"uri": "sqlite:///results/mlflow.db"},
}
"""Every defense of the first paper, every attack and every figure that they make."""
FEW_FIGURES = {"tan2024": ("fig04",), "tan2024_capacity": ("fig09",), "tan2024_comparison": ("table02",)}
FEW_FIGURES |= {"beyond": ("scoreboard",)}
SMALL = {
    **WHOLE,
    "catalogue": "config/few.yaml",
    "studies": {"capacity": study({"none": [], "natural": [4.0], "white": [4.0]}, ["membership"])},
    "illustrations": {"toy_example": {}},
}
"""A part of it that has each kind of job, for a fifth of the time."""


@dataclass(frozen=True)
class Project:
    """A copy of the project that may be edited and run."""

    folder: Path
    config: dict = field(default_factory=lambda: SMALL)

    @property
    def results(self) -> Path:
        return self.folder / "results" / "tiny"

    def configure(self, config: dict | None = None) -> None:
        """Write a configuration, by default the one that the project was made with."""
        (self.folder / "config" / "tiny.yaml").write_text(yaml.safe_dump(config or self.config))

    def figures(self) -> list[dict]:
        """Everything that the catalogue of the configuration could draw."""
        place = self.folder / self.config.get("catalogue", "config/figures")
        files = [place] if place.is_file() else sorted(place.glob("*.yaml"))
        return [figure for path in files for figure in yaml.safe_load(path.read_text())["figures"]]

    def runs(self, trained: bool = True) -> set[tuple[str, float | None]]:
        """Defense and level of the runs of all studies, those that are trained or those that are not."""
        return {
            (defense, level)
            for study in self.config["studies"].values()
            if (study["rounds"] != [0]) == trained
            for defense, levels in study["defenses"].items()
            for level in levels or [None]
        }

    def snakemake(
        self, *options: str, jobs: int = 2, configfile: str = "config/tiny.yaml"
    ) -> subprocess.CompletedProcess[str]:
        command = ["snakemake", "--configfile", configfile, "-j", str(jobs), *options]
        return subprocess.run(command, cwd=self.folder, env=environment(self.folder), capture_output=True, text=True)

    def planned(self, *targets: str) -> dict[str, int]:
        """Jobs of each rule that a run would start now; empty if there is nothing to do."""
        found = self.snakemake("--quiet", "rules", "--dry-run", *targets)
        assert found.returncode == 0, found.stdout + found.stderr
        return job_counts(found.stdout + found.stderr)


def job_counts(text: str) -> dict[str, int]:
    """Jobs of each rule that a call of Snakemake has listed, those of all figures and of all attacks together."""
    listed = text.partition("Job stats:")[2].partition("total")[0]
    counts: Counter[str] = Counter()
    for rule, number in re.findall(r"^([\w-]+) +(\d+)$", listed, re.MULTILINE):
        counts[re.sub("^(figures|attack)_.*", r"\1", rule)] += int(number)
    return dict(counts)


def tiny_project(folder: Path, config: dict = SMALL) -> Project:
    """A copy of the project with a configuration, in which nothing has run."""
    project = Project(copied_project(folder), config)
    chosen = [
        figure
        for name, wanted in FEW_FIGURES.items()
        for figure in yaml.safe_load((folder / "config" / "figures" / f"{name}.yaml").read_text())["figures"]
        if figure["id"] in wanted
    ]
    (folder / "config" / "few.yaml").write_text(yaml.safe_dump({"figures": chosen}))
    project.configure()
    return project


def run_to_its_end(project: Project) -> Project:
    result = project.snakemake()
    assert result.returncode == 0, result.stdout[-5000:] + result.stderr[-10000:]
    return project


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Project:
    """A small project whose chain has run; tests that change it restore it."""
    return run_to_its_end(tiny_project(tmp_path_factory.mktemp("small")))


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Project:
    """A project whose whole chain has run; tests that change it restore it."""
    return run_to_its_end(tiny_project(tmp_path_factory.mktemp("whole"), WHOLE))


@pytest.fixture(params=["small", "whole"])
def finished(request) -> Project:
    """Each of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def fresh(tmp_path) -> Project:
    """A project in which nothing has run."""
    return tiny_project(tmp_path)
