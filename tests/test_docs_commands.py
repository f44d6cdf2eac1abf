"""Command lines of the pages: the parser takes each of them, and those that are quick run on small data."""

import contextlib
import re
import shlex
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
import snakemake.cli
import typer
import yaml

from calling import called
from leakbound.commands.command_line import app, every_command
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import JobList, rule_of
from leakbound_lab.jobs.rules import Rules
from leakbound_lab.steps.job_list import job_list
from test_docs_names import PAGES, code

ROOT = Path(__file__).parents[1]
# What a reader puts there, for words of the pages.
PUT = {" JOBS": " 2", " NAME": " train", "--configfile FILE": "--configfile config/small.yaml"}
PUT |= {"--table FILE": "--table costs.csv", "mine/config": "config/config"}
GROUP = typer.main.get_command(app)
QUICK = ("risk", "calibrate", "protect", "config", "plan --table")


def lines(program: str) -> list[str]:
    """Command lines of a program on all pages and in the help, each once, without the program's name."""
    pieces = {piece for path in PAGES if path.name != "CHANGELOG.md" for piece in code(path.read_text("utf-8"))}
    pieces |= {text for name in every_command() for text in GROUP.get_command(None, name).epilog.split("\n\n")}
    found = (re.findall(rf"(?:^|\$ |&& |or: |Example: |=\S+ ){program} ([^#]*)", piece) for piece in pieces)
    whole = {" ".join(line.split()) for lines in found for line in lines}
    for word, value in PUT.items():
        whole = {line.replace(word, value) for line in whole}
    return sorted(whole)


LINES = lines("leakbound")
MENTIONED = [line for line in LINES if re.fullmatch(r"((step )?[a-z-]+ ?)?(--[a-z-]+)?", line)]  # without values
RUN = [line for line in LINES if line.startswith(QUICK) and line not in MENTIONED]
TEXT = "\n".join(path.read_text("utf-8") for path in PAGES)
SHOWN = dict(re.findall(r"^leakbound ([^\n]*)\n```\n\n```text\n(.*?)^```", TEXT, re.M | re.S))


def command(line: str) -> tuple[typer.core.TyperCommand, list[str]]:
    """The command that a line calls, and the words behind its name."""
    words = shlex.split(line)
    found = GROUP
    while isinstance(found, typer.core.TyperGroup) and words and words[0] in found.commands:
        found = found.get_command(None, words.pop(0))
    return found, words


@pytest.mark.parametrize("line", sorted({*LINES} - {*RUN}))
def test_the_parser_takes_a_line_and_its_configuration_makes_its_run(line):
    found, words = command(line)
    if line in MENTIONED:
        assert {*words} <= {option for one in found.get_params(typer.Context(found)) for option in one.opts}
        return
    given = found.make_context("leakbound", words).params
    configuration = ROOT / given.get("configfile", "config/config.yaml")
    assert configuration.is_file()
    if "/" in (run := str(given.get("run"))):  # and not --no-run
        assert run in job_list(reading.load(configuration)).table.runs


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Folder of the digits and the table that docs/commands.md makes."""
    folder = tmp_path_factory.mktemp("pictures")
    block = re.search(r"^```py\n(.*?)^```", (ROOT / "docs/commands.md").read_text("utf-8"), re.M | re.S)[1]
    with contextlib.chdir(folder):
        exec(compile(block, "commands.md", "exec"), {})
    return folder


@pytest.mark.parametrize(
    "line", [pytest.param(one, marks=[pytest.mark.slow] * ("rgb" in one or "own" in one)) for one in RUN]
)
def test_a_quick_line_runs_and_says_what_the_page_shows(pictures, line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    links = {"config": ROOT / "config", "costs.csv": ROOT / "src/leakbound_lab/jobs/costs.csv"}
    links |= dict.fromkeys(("mine", "photos", "FOLDER"), pictures / "mine")
    links |= dict.fromkeys(("public", "others", "OTHERS"), pictures / "public")
    links |= {name: pictures / name for name in ("patients.csv", "others.csv")}
    for name, original in links.items():
        Path(name).symlink_to(original)
    outcome = called(*shlex.split(line))
    assert outcome.code == 0, outcome.err
    assert outcome.out.startswith(SHOWN.get(line, ""))


@cache
def made_from(file: str, changes: tuple[str, ...]) -> tuple[JobList, set[str]]:
    """Results of a configuration of this repository with some of its settings changed, and the rules that make them."""
    asked = yaml.safe_load((ROOT / file).read_text("utf-8"))
    snakemake.cli.update_config(asked, snakemake.cli.parse_config(changes))  # as Snakemake joins the two
    made = job_list(reading.config_of(asked, file))
    rules = {f"figures_{of}" if rule == "figures" else rule for rule, of in map(rule_of, made) if rule != "attack"}
    attacking = (*Rules(made).attack_lists(), *Rules(made).untrained())
    return made, rules | {"attacks", *(attacked.rule for attacked in attacking)}


@pytest.mark.parametrize("line", lines("snakemake"))
def test_snakemake_takes_a_line_and_what_it_names_exists(line, monkeypatch):
    monkeypatch.chdir(ROOT)
    _, found = snakemake.cli.parse_args(shlex.split(line))
    assert Path(found.workflow_profile or ROOT).exists()
    made, own = made_from(str((found.configfile or ["config/config.yaml"])[0]), tuple(found.config or ()))
    rules = own | made_from("config/small.yaml", ())[1]
    assert {*(found.until or ()), *(found.forcerun or ()), *found.set_resources, *found.groups} <= rules
    if found.targets:
        assert {*found.targets} <= {*made.files()} | rules


def test_the_audit_of_the_guide_is_that_of_the_kept_results():
    guide = (ROOT / "docs/guide.md").read_text("utf-8")
    run, shown = re.search(r"^\$ leakbound audit (\S+) .*\n.*\n((?:.+\n)+?)```", guide, re.M).groups()
    kept = pd.read_parquet(ROOT / "results/reference/photos/tables/audit.parquet")
    kept = kept[(kept["run"] == run) & (kept["source"] == "evidence")]
    allowed_demonstrated = [row.split()[place] for place in (4, 3) for row in shown.splitlines()]
    assert allowed_demonstrated == [f"{value:.4g}" for value in kept["value"]]
