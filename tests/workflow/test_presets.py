"""The DAG of every committed preset, built and not run."""

from collections import Counter

import pytest
from project_copy import ROOT

from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.shared_jobs import made_together

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
