"""The DAG of committed presets, built and not run: of all if ``THOROUGH`` is set, else of some that hold each rule."""

import os
from collections import Counter

import pytest
from project_copy import ROOT

from leakbound_lab.config import reading
from leakbound_lab.jobs.job import jobs_by_rule, rule_of
from leakbound_lab.steps.job_list import job_list

from .conftest import job_counts, tiny_project

DEFAULT = "config.yaml"
NAMES = {DEFAULT, "small.yaml", "pmidp_rate.yaml"}
if "THOROUGH" in os.environ:
    NAMES |= {path.name for path in (ROOT / "config").glob("*.yaml")}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == DEFAULT else pytest.mark.slow) for name in sorted(NAMES)]
)
def test_preset_has_the_jobs_of_its_plan_and_each_waits_for_all_files_that_its_results_read(tmp_path, name):
    """Rules and steps both say what a result is made from; a file that a rule leaves out might not be there yet."""
    shown = tiny_project(tmp_path).snakemake("--dry-run", configfile=f"config/{name}")
    text = shown.stdout + shown.stderr
    made = job_list(reading.load(ROOT / "config" / name))
    assert job_counts(text) == Counter(rule for rule, _ in jobs_by_rule(made)) + Counter(["all"])
    waits: dict[str, set[str]] = {}
    inputs: set[str] = set()
    for line in text.splitlines():
        word, _, paths = line.strip().partition(": ")
        if word == "output":
            waits |= dict.fromkeys(paths.split(", "), inputs)
        inputs = set(paths.split(", ")) if word == "input" else set()
    read = 0
    for job in made:
        for file in job.input_files():
            maker = made.made_by[file]
            if rule_of(maker) != rule_of(job):
                assert all(file in waits[path] for path in job.outputs.values()), (job.step, job.name, file)
                read += 1
    assert read > len(made.of("train"))
