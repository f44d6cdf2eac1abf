"""The profile of the cluster against rules and presets; needs no SLURM."""

import re

import pytest
import yaml
from project_copy import ROOT
from slurm_queue import PROFILE

from leakbound.config import reading

SETTINGS = yaml.safe_load((ROOT / PROFILE / "config.yaml").read_text())
PRESETS = sorted(path.name for path in (ROOT / "config").glob("*.yaml"))


@pytest.mark.parametrize("name", PRESETS)
def test_no_box_is_silently_given_fewer_threads_than_its_preset_asks_for(name):
    asked = reading.load(ROOT / "config" / name).resources.model_dump()
    assert max(box["threads"] for box in asked.values()) <= SETTINGS["cores"]


def test_only_the_profile_repeats_jobs():
    rules = "".join(path.read_text() for path in (ROOT / "workflow").rglob("*.smk"))
    assert not re.search(r"^\s*retries:", rules, re.MULTILINE)  # a job would repeat itself inside the job
    assert SETTINGS["retries"] == 2


def test_gpus_are_not_capped_over_all_jobs():
    assert not [cap for cap in SETTINGS["resources"] if cap.startswith("gpu=")]  # a cap of the one-machine profile
