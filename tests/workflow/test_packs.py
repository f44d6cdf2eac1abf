"""Results of another machine, packed there and merged into a fresh copy: what is missing is made, and nothing else."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from project_copy import ROOT, environment

from .conftest import Project

RUN = "digits/lenet/natural-4/n20-b32"
OURS = {"illustrate", "tabulate", "claims", "figures", "log", "log_figures", "report", "all"}


def packs(project: Project, *words: object) -> str:
    """Call the script in a project."""
    script = [sys.executable, str(ROOT / "tools/gpu_packs.py"), "--configfile", "config/tiny.yaml"]
    done = subprocess.run(
        [*script, *map(str, words)], cwd=project.folder, env=environment(project.folder), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_merged_results_are_not_made_again_and_give_the_same_tables(small, fresh, tmp_path):
    lent = Project(tmp_path / "lent")
    shutil.copytree(small.folder, lent.folder)
    (lent.results / f"attacks/{RUN}/membership.json").unlink()  # the clock ended this attack
    said = packs(lent, "--pack", tmp_path / "first")
    assert "train 3 of 3, attack 2 of 3" in said
    packs(fresh, "--merge", *(tmp_path / "first").iterdir())
    due = fresh.planned()
    assert {rule: number for rule, number in due.items() if rule not in OURS} == {"attack": 1}
    packs(small, "--pack", tmp_path / "second")
    packs(fresh, "--merge", *(tmp_path / "second").iterdir())
    assert fresh.planned().keys() <= OURS
    tables = [*(small.results / "tables").glob("*.parquet"), small.results / "claims.parquet"]
    targets = [str(path.relative_to(small.folder)) for path in tables]
    made = fresh.snakemake("--", *targets)
    assert made.returncode == 0, made.stdout + made.stderr
    for path, target in zip(tables, targets, strict=True):
        assert (fresh.folder / target).read_bytes() == path.read_bytes(), path
    assert fresh.planned("--", *targets) == {}
    edited = fresh.folder / "src/leakbound_lab/training/loop.py"
    edited.write_text(edited.read_text() + "\nADDED = 1\n")
    assert fresh.planned()["train"] == 3  # they have Snakemake's notes, so a change makes them again


def test_runs_come_in_the_order_of_the_configuration_and_attacks_right_after_their_training(fresh):
    shown = fresh.snakemake("--dry-run")
    priorities: dict[str, dict[str, int]] = {"train": {}, "attack": {}}
    rule, run = "", ""
    for line in (shown.stdout + shown.stderr).splitlines():
        word, _, value = line.strip().partition(": ")
        if line.strip().startswith(("rule ", "localrule ")):
            rule = re.sub("^attack_.*", "attack", line.strip().split()[-1].rstrip(":"))
        elif word == "log" and rule in priorities:
            run = str(Path(value).relative_to("results/tiny/logs", rule))
            priorities[rule][run] = 0
        elif word == "priority" and rule in priorities:
            priorities[rule][run] = int(value)
    order = sorted(priorities["train"], key=priorities["train"].get, reverse=True)
    assert [run.split("/")[2] for run in order] == ["natural-4", "none", "white-4"]  # as it is written
    assert len({*priorities["train"].values()}) == 3
    assert priorities["attack"] == {run: value + 1 for run, value in priorities["train"].items()}
