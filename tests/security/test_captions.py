"""What a configuration says is text in Snakemake's own report, whatever it says."""

import subprocess
from pathlib import Path

import pytest
import yaml
from project_copy import copied_project, environment

SECRET = "the-content-of-a-file-of-the-user"


@pytest.mark.slow
def test_snakemakes_own_report_of_a_hostile_catalogue_holds_no_other_file(tmp_path):
    project = copied_project(tmp_path / "project")
    (tmp_path / "secret.txt").write_text(SECRET)
    catalogue = yaml.safe_load((project / "config/figures/tan2024.yaml").read_text())["figures"]
    hostile = f".. include:: {tmp_path / 'secret.txt'}"
    figures = [{**one, "title": hostile, "caption": hostile, "claims": []} for one in catalogue if one["id"] == "fig04"]
    (project / "config/hostile.yaml").write_text(yaml.safe_dump({"figures": figures}))
    config = {"preset": "hostile", "catalogue": "config/hostile.yaml", "datasets": {}, "studies": {}}
    config["illustrations"] = {"toy_example": {}}
    (project / "config/run.yaml").write_text(yaml.safe_dump(config))
    for options in ([], ["--report", "report.html"]):
        command = ["snakemake", "--configfile", "config/run.yaml", "-j", "1", *options]
        done = subprocess.run(command, cwd=project, env=environment(project), capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    for page in (project / "report.html", Path(project / "results/hostile/report.html")):
        text = page.read_text(encoding="utf-8")
        assert SECRET not in text
        assert "secret.txt" in text
