"""The DAG of every committed preset, built and not run."""

from collections import Counter

import pytest
from project_copy import ROOT

from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.job import made_together, rule_of, snakemake_target

from .conftest import tiny_project

DEFAULT = "config.yaml"
NAMES = sorted(path.name for path in (ROOT / "config").glob("*.yaml"))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == DEFAULT else pytest.mark.slow) for name in NAMES]
)
def test_committed_preset_has_the_jobs_that_its_plan_counts(tmp_path, name):
    project = tiny_project(tmp_path)
    config = reading.load(ROOT / "config" / name)
    expected = Counter(rule for rule, _ in made_together(job_list(config)))
    planned = project.planned(configfile=f"config/{name}")
    assert planned.pop("all") == 1
    assert planned == expected


@pytest.mark.parametrize("name", [DEFAULT, pytest.param("small.yaml", marks=pytest.mark.slow)])
def test_every_rule_waits_for_all_files_that_its_results_read(tmp_path, name):
    """Rules and steps both say what a result is made from; a file that a rule leaves out might not be there yet."""
    project = tiny_project(tmp_path)
    shown = project.snakemake("--dry-run", "--forceall", configfile=f"config/{name}")
    waits: dict[str, set[str]] = {}
    inputs: set[str] = set()
    for line in (shown.stdout + shown.stderr).splitlines():
        word, _, paths = line.strip().partition(": ")
        if word == "output":
            waits |= dict.fromkeys(paths.split(", "), inputs)
        inputs = set(paths.split(", ")) if word == "input" else set()
    made = job_list(reading.load(ROOT / "config" / name))
    read = 0
    for job in made:
        for file in job.input_files():
            maker = made.made_by[file]
            if rule_of(maker) != rule_of(job):
                awaited = [waits[snakemake_target(job, path)] for path in job.outputs.values()]
                assert all(snakemake_target(maker, file) in files for files in awaited), (job.step, job.name, file)
                read += 1
    assert read > len(made.of("train"))
