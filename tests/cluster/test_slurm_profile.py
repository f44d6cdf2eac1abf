"""The profile of the cluster against rules and presets; needs no SLURM."""

import os
import re
import shlex
import subprocess

import pytest
import yaml
from project_copy import ROOT, environment
from slurm_queue import CONFIGFILE, PROFILE, configured_project
from slurm_settings import CHAIN

from leakbound_lab.config import reading

SETTINGS = yaml.safe_load((ROOT / PROFILE / "config.yaml").read_text())
PRESETS = sorted(path.name for path in (ROOT / "config").glob("*.yaml"))


@pytest.mark.parametrize("name", PRESETS)
def test_no_box_is_silently_given_fewer_threads_than_its_preset_asks_for(name):
    asked = reading.load(ROOT / "config" / name).resources.model_dump()
    assert max(box["threads"] for box in asked.values()) <= SETTINGS["cores"]


def test_only_the_profile_repeats_jobs_and_gpus_are_not_capped_over_all_of_them():
    rules = "".join(path.read_text() for path in (ROOT / "workflow").rglob("*.smk"))
    assert not re.search(r"^\s*retries:", rules, re.MULTILINE)  # a job would repeat itself inside the job
    assert SETTINGS["retries"] == 2
    assert not [cap for cap in SETTINGS["resources"] if cap.startswith("gpu=")]  # a cap of the one-machine profile


def test_groups_that_the_docs_name_can_be_made(tmp_path):
    page = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")
    (command,) = [
        block for block in re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "--groups" in block
    ]
    (tmp_path / "given.yaml").write_text(yaml.safe_dump(CHAIN))
    made = configured_project(tmp_path, tmp_path / "given.yaml")
    words = [*shlex.split(command.replace("\\\n", " ")), "--dry-run", "--configfile", CONFIGFILE]
    found = subprocess.run(words, cwd=made, env=environment(made), capture_output=True, text=True)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-3000:]
    assert "Group job run" in found.stdout + found.stderr


def test_recover_names_the_cancelled_jobs_that_it_waits_for(tmp_path):
    """A queue that keeps a cancelled job for two answers, and one of another folder for ever."""
    (tmp_path / "bin").mkdir()
    queue = f'echo >> {tmp_path}/asked\n[ $(wc -l < {tmp_path}/asked) -gt 3 ] || echo "7 $PWD"\necho "8 /elsewhere"'
    programs = {"squeue": queue, "scancel": f'echo "$@" >> {tmp_path}/cancelled', "snakemake": "echo header"}
    for name, script in programs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    variables = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run([ROOT / PROFILE / "recover"], cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cancelled").read_text() == "7\n"
    assert done.stderr == "waiting until these cancelled jobs have left the queue: 7 \n"
