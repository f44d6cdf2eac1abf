"""The workflow as a module of another project, as docs/cluster.md says, planned and not run."""

import re
import shutil
import subprocess
from collections import Counter

import pytest
from project_copy import ROOT, environment

from leakbound_lab.config import reading
from leakbound_lab.jobs.job import jobs_by_rule
from leakbound_lab.steps.job_list import job_list

from .conftest import job_counts

PAGE = ROOT / "docs/cluster.md"


@pytest.mark.slow
def test_the_module_of_the_page_has_the_jobs_of_the_checkout(tmp_path):
    (block,) = re.findall(r"```text\n(# workflow/Snakefile\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block.count("/shared/leakbound") == 1
    (tmp_path / "workflow").mkdir()
    (tmp_path / "workflow/Snakefile").write_text(block.replace("/shared/leakbound", str(ROOT)), encoding="utf-8")
    for name in ("config", "profiles"):
        shutil.copytree(ROOT / name, tmp_path / name)
    command = ["snakemake", "--dry-run", "-j", "2"]
    surroundings = {**environment(ROOT), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    planned = subprocess.run(command, cwd=tmp_path, env=surroundings, capture_output=True, text=True, check=False)
    assert planned.returncode == 0, planned.stdout[-2000:] + planned.stderr[-4000:]
    made = job_list(reading.load(ROOT / "config/config.yaml"))
    wanted = Counter(rule for rule, _ in jobs_by_rule(made)) + Counter(["all"])
    assert job_counts(planned.stdout + planned.stderr) == wanted
    assert not (tmp_path / "results").exists()
