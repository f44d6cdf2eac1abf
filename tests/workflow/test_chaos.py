"""Killed at chosen moments and called again: coordinator, training, between two outputs. Nothing of it may be seen."""

import copy
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from project_copy import copied_project, environment

from leakbound.storage import locks

from .conftest import SMALL, Project

RUN = "digits/lenet/natural-4/n20-b32"
PRODUCTS = ("runs", "references", "attacks", "logs/train", "logs/attack", "tracking")
ATTACKS, TRACKING = f"results/tiny/attacks/{RUN}/membership.json", f"results/tiny/tracking/{RUN}.json"
# Loaded by every process of the project: kills when a file is about to take its name, or has just taken it.
FAULTS = """
import fnmatch, os, pathlib, signal, time

folder = pathlib.Path(__file__).parents[1] / "faults"
unharmed = pathlib.Path.replace


def replace(path, target):
    name = pathlib.Path(target).name
    for fault in folder.iterdir() if folder.is_dir() else ():
        if fnmatch.fnmatch(name, fault.name):
            victim, moment = fault.read_text().split()
            fault.unlink()
            if moment == "after":
                unharmed(path, target)
            own = os.getpid()
            os.kill(int(os.environ["LEAKBOUND_COORDINATOR"]) if victim == "coordinator" else own, signal.SIGKILL)
            time.sleep(60)
    return unharmed(path, target)


pathlib.Path.replace = replace
"""


@pytest.fixture
def damaged(small, tmp_path) -> Project:
    """A copy of the finished project without the products of one run, whose training saves checkpoints at once."""
    folder = tmp_path / "project"
    shutil.copytree(small.folder, folder)
    project = Project(folder)
    config = copy.deepcopy(SMALL)
    config["training"]["checkpoint_seconds"] = 0.001
    project.configure(config)
    for kind in PRODUCTS:
        for path in (project.results / kind).glob(f"{RUN}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    shutil.rmtree(project.results / ".kept")
    for path in (folder / "results").glob("mlflow.db*"):
        path.unlink()
    (folder / "src" / "sitecustomize.py").write_text(FAULTS)
    (folder / "faults").mkdir()
    return project


def called_and_killed(
    project: Project, file: str, victim: str, moment: str, target: str = ATTACKS
) -> subprocess.CompletedProcess[str]:
    """Call the workflow with one fault; returns when its jobs have ended too."""
    fault = project.folder / "faults" / file
    fault.write_text(f"{victim} {moment}")
    result = project.snakemake(target, jobs=1)
    assert not fault.exists(), result.stdout[-3000:] + result.stderr[-3000:]
    assert result.returncode == (-signal.SIGKILL if victim == "coordinator" else 1)
    with locks.opened(project.results / ".jobs.lock") as jobs:
        locks.acquire(jobs, wait=True)
    return result


def hidden_or_unfinished(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.name.startswith(".") or path.suffix == ".pt"}


@pytest.mark.slow
def test_run_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(damaged, small):
    training, attacks = damaged.results / "runs" / RUN, damaged.results / "attacks" / RUN

    called_and_killed(damaged, "checkpoint-*.pt", "job", "after")
    assert len(list(training.glob("checkpoint-*.pt"))) == 1

    called_and_killed(damaged, "training.parquet", "coordinator", "before")
    assert (training / "weights.safetensors").is_file()
    assert not (training / "training.parquet").exists()

    called_and_killed(damaged, "membership.safetensors", "job", "before")
    assert (training / "provenance.json").is_file()
    assert not list(training.glob("checkpoint-*.pt"))
    assert not list(attacks.glob("[!.]*"))  # Snakemake takes away what a job has left that went wrong
    (kept,) = (damaged.results / ".kept/references" / RUN).glob("*/weights.safetensors")

    called_and_killed(damaged, "membership.json", "coordinator", "before")
    assert (attacks / "membership.safetensors").is_file()
    assert not (damaged.folder / ATTACKS).exists()

    assert damaged.snakemake(ATTACKS).returncode == 0
    references = damaged.results / "references" / RUN / "weights.safetensors"
    assert references.samefile(kept)  # finished before the first of these kills, so not trained again

    # The notes need the other runs, whose checkpoints are as new in the configuration as those of this one.
    others = [f"results/tiny/attacks/{slug}/membership.json" for slug in slugs_of(small) if slug != RUN]
    assert damaged.snakemake(*others).returncode == 0
    called_and_killed(damaged, f"{Path(RUN).name}.json", "coordinator", "before", TRACKING)
    assert not (damaged.folder / TRACKING).exists()

    result = damaged.snakemake(TRACKING)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert damaged.planned(TRACKING) == {}
    for kind in ("runs", "attacks"):
        one, other = small.results / kind / RUN, damaged.results / kind / RUN
        assert {path.name for path in one.iterdir()} == {path.name for path in other.iterdir()}
        for path in one.iterdir():
            record = path.suffix == ".json" or path.name.startswith(".")  # with times, and the seals of those
            assert record or path.read_bytes() == (other / path.name).read_bytes(), path
    for kind in ("runs", "attacks", "tracking"):
        assert hidden_or_unfinished(damaged.results / kind) <= hidden_or_unfinished(small.results / kind)
    expected = {f"{slug}{part}": 1 for slug in slugs_of(small) for part in ("", "#0", "#1")}
    assert expected.items() <= finished_runs(damaged.folder / "results" / "mlflow.db").items()
    assert set(finished_runs(damaged.folder / "results" / "mlflow.db").values()) == {1}


def slugs_of(project: Project) -> list[str]:
    """Runs that were trained, by name."""
    runs = project.results / "runs"
    return sorted(str(path.relative_to(runs)) for path in runs.glob("digits/lenet/*/n20-b32"))


def finished_runs(database: Path) -> dict[str, int]:
    """Key to how many finished MLflow runs there are that are not in the bin; others fail."""
    query = """
        SELECT tags.value, runs.status FROM runs JOIN tags ON tags.run_uuid = runs.run_uuid
        WHERE tags.key = 'leakbound.key' AND runs.lifecycle_stage = 'active'
    """
    connection = sqlite3.connect(database)
    try:
        found = connection.execute(query).fetchall()
    finally:
        connection.close()
    assert {status for _, status in found} == {"FINISHED"}
    keys = [key for key, _ in found]
    return {key: keys.count(key) for key in keys}


def test_second_run_of_a_configuration_is_refused_in_one_line_and_leaves_no_lock(fresh):
    code = "import sys, time; from pathlib import Path; from leakbound_lab.jobs import coordination; "
    code += "coordination.lead(Path(sys.argv[1])); print(flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, fresh.results], stdout=subprocess.PIPE) as holder:
        holder.stdout.readline()
        refused = fresh.snakemake("results/tiny/data/digits.safetensors")
        planned = fresh.planned("results/tiny/data/digits.safetensors")
        holder.kill()
    assert refused.returncode == 1
    (said,) = [line for line in refused.stderr.splitlines() if line.startswith("results/tiny: ")]
    assert said.startswith(f"results/tiny: process {holder.pid} on ")
    assert "Traceback" not in refused.stderr
    assert not (fresh.results / "data").exists()
    assert planned == {"prepare": 1}  # looking is free
    assert not list((fresh.folder / ".snakemake").glob("locks/*"))


def test_folder_that_cannot_be_written_is_named_in_one_sentence(tmp_path):
    """Nobody, not even root, can make a file in /proc."""
    folder = copied_project(tmp_path / "own")
    words = f"snakemake -j 1 -s {folder}/workflow/Snakefile --configfile {folder}/config/config.yaml -d /proc"
    run = subprocess.run(words.split(), env=environment(folder), capture_output=True, text=True, cwd=folder)
    assert run.returncode != 0
    assert "/proc: nothing can be written here" in run.stderr
    assert "Traceback" not in run.stderr


CALL = "import sys; from leakbound.commands.command_line import main; sys.argv[0] = 'leakbound'; main()"


def with_command(folder, script):
    """Variables and folder of a copy of the project in which a script stands for the command line."""
    copied_project(folder)
    (folder / "bin").mkdir()
    (folder / "bin/leakbound").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin/leakbound").chmod(0o755)
    variables = environment(folder)
    variables["PATH"] = os.pathsep.join([str(folder / "bin"), variables["PATH"]])
    return {"cwd": folder, "env": variables, "capture_output": True, "text": True}


def test_interrupted_comparison_waits_for_its_run_and_ends_with_the_status_of_ctrl_c(tmp_path):
    """The first job sends what Ctrl-C sends, to all processes of the terminal."""
    shared = with_command(tmp_path / "own", "trap '' INT\nmkdir sent && kill -INT 0\nsleep 2\nexit 130")
    words = (sys.executable, "-c", CALL, "compare", "digits", "--minutes", "1")
    compared = subprocess.run(words, start_new_session=True, **shared)
    assert compared.returncode == 130
    *before, run, _, last = compared.stderr.splitlines()
    assert re.fullmatch(r"Stopped after 0 of \d+ jobs, which are kept; the same command goes on\.", run)
    assert last == "leakbound: interrupted; the same command goes on, or begins again"
    assert not [line for line in before if "rror" in line or "Traceback" in line]


def test_screen_shows_progress_and_no_job_that_goes_well(tmp_path):
    folder = copied_project(tmp_path / "own")
    targets = [f"results/quick/data/{name}.safetensors" for name in ("digits", "digits_canaries")]
    words = ("snakemake", "-j", "2", "--", *targets)
    run = subprocess.run(words, env=environment(folder), capture_output=True, text=True, cwd=folder)
    assert re.findall(r"^(\d) of 2 steps", run.stderr, re.M) == ["1", "2"]
    assert not re.findall(r"^.*(?:rule prepare|output:|Finished jobid|Select jobs).*$", run.stderr, re.M)


def test_end_of_a_killed_job_names_memory(tmp_path):
    words = ("-j", "1", "--configfile", "config/config.yaml", "--", "results/quick/data/digits.safetensors")
    run = subprocess.run(["snakemake", *words], **with_command(tmp_path / "own", "kill -9 $$"))
    assert run.returncode != 0
    assert "A job was killed (SIGKILL), as the system does when memory runs out" in run.stderr
