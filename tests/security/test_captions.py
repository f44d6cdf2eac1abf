"""What a configuration says is text in Snakemake's own report, whatever it says."""

import subprocess
from pathlib import Path

import pytest
import yaml
from docutils.core import publish_parts
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment
from project_copy import ROOT, copied_project, environment

from leakbound_lab.config.catalogue import Catalogue, FigureConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.table import RunTable

SECRET = "the-content-of-a-file-of-the-user"


class Shown:
    """What Snakemake hands to the template of a caption."""

    def __init__(self, caption: str) -> None:
        self.params = self.wildcards = self
        self.figure = "hostile"
        self.captions = {self.figure: caption}


def table(caption: str) -> RunTable:
    facts = {"id": "hostile", "paper": "beyond", "title": "t", "caption": caption}
    figure = FigureConfig(**facts, illustration="weights", plot="weights")
    config = Config(datasets={}, studies={}, illustrations={"weights": {}})
    return RunTable(config, Catalogue(figures=(figure,)))


def rendered(text: str) -> str:
    """The caption as Snakemake renders it: the template by Jinja, then docutils with its own settings."""
    template = (ROOT / "workflow/report/figure.rst").read_text(encoding="utf-8")
    return publish_parts(Environment().from_string(template).render(snakemake=Shown(text)), writer="html")["body"]


@pytest.mark.parametrize("hostile", [".. include:: {}", ".. image:: {}"])
def test_caption_brings_no_file_into_snakemakes_report(tmp_path, hostile):
    """The caption as it stands does."""
    (tmp_path / "secret.txt").write_text(SECRET)
    caption = hostile.format(tmp_path / "secret.txt")
    made = table(caption)
    bare, found = rendered(made.caption("beyond/hostile")), rendered(made.caption_markup("beyond/hostile"))
    assert SECRET in bare or "<img" in bare
    assert SECRET not in found
    assert "<img" not in found
    assert "secret.txt" in found  # as text


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1))
def test_caption_is_one_paragraph_of_the_same_text(words):
    text = " ".join(f"x {words}".split())
    markup = table(text).caption_markup("beyond/hostile")
    parts = publish_parts(markup, writer="pseudoxml", settings_overrides={"report_level": 1})["whole"]
    lines = parts.splitlines()
    assert lines[1].strip() == "<paragraph>"
    assert " ".join(" ".join(lines[2:]).split()) == " ".join(text.split())


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
