"""The jobs of a configuration, run one after another in this process as the workflow would run them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from calling import arguments_of, done, job_called
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Job, JobList
from leakbound_lab.steps.job_list import all_steps, job_list
from leakbound_lab.steps.step_command import run_step

ROOT = Path(__file__).parents[2]


def small_study(preset: str, model: str, defenses: dict, **changed: object) -> dict:
    """A configuration of digits and one network that trains for five steps."""
    lists = {"datasets": ["digits"], "models": [model], "rounds": [5], "batch_sizes": [16]}
    return {
        "preset": preset,
        "datasets": {"digits": {"members": 60, "pool": 150, "test": 60, "aux": 60}},
        "training": {"learning_rates": [0.01], "evaluations": 1},
        "studies": {"small": {**lists, "defenses": defenses, "attacks": []}},
        "tracking": {"enabled": False},
        **changed,
    }


STEPS = {one.name: one for one in all_steps()}


def step(name: str, settings: dict, **files: Path) -> None:
    """Call a step with its settings and its files."""
    run_step(STEPS[name], settings, files, arguments_of(STEPS[name], settings))


def run_jobs(
    folder: Path,
    config: dict,
    patch: pytest.MonkeyPatch,
    steps: set[str] | None = None,
    after: Callable[[Job], None] = lambda job: None,
) -> tuple[Path, JobList]:
    """Run all jobs, or those of some steps, in a folder; returns that of their results, and the jobs."""
    (folder / "config").mkdir(parents=True, exist_ok=True)
    if not (folder / "config/figures.yaml").exists():
        (folder / "config/figures.yaml").write_text("figures: []\n")
    tracking = {"uri": f"sqlite:///{folder}/results/mlflow.db"} | config.get("tracking", {})
    config = {"catalogue": "config/figures.yaml", **config, "tracking": tracking}
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config))
    patch.chdir(folder)
    made = job_list(reading.load(Path("config/config.yaml")))
    for job in made:
        if steps is None or job.step in steps:
            done(job_called(job))
            after(job)
    return folder / "results" / config["preset"], made
