"""The workflow through a real SLURM: what jobs ask for, and that nothing is lost when they end before their time."""

import json
import subprocess
import sys

import pytest
from project_copy import ROOT
from slurm_settings import DATASETS, SEARCH, STUDY, TRAINING

from studies import study

CHAIN = {
    "preset": "chain",
    "replicas": 2,
    "datasets": DATASETS,
    "training": {**SEARCH, "evaluations": 2, "checkpoint_seconds": 0.5},
    "attacks": {
        "membership": {"epochs": 2, "learning_rates": [1e-3]},
        "gradient_inversion": {"images": 2, "iterations": 8, "tv_weights": [1e-2]},
    },
    "studies": {
        "capacity": {**STUDY, "defenses": {"none": [], "natural": [4.0]}, "rounds": [500]},
        "gradient_inversion": study(
            {"none": []}, ["gradient_inversion"], models=["lenet_sigmoid"], rounds=0, batch_size=1
        ),
    },
}


def test_jobs_ask_for_what_the_configuration_says(queue):
    if "gpu:" not in subprocess.run(["sinfo", "-h", "-o", "%G"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this SLURM has no GPUs, not even pretended ones")
    study = {**STUDY, "rounds": [8], "defenses": {"natural": [4.0]}}
    asked = {"calibrate": {"mem_mb": 1100, "runtime": 11}, "train": {"mem_mb": 1700, "runtime": 70, "gpu": 1}}
    made = queue({**TRAINING, "studies": {"capacity": study}, "resources": asked})
    provenance = "results/training/runs/digits/lenet/natural-4/n8-b16/provenance.json"
    status, words = made.run("--config", "replicas=2", "--", provenance)
    assert status == 0, words[-5000:]
    assert {job.work: (job.memory, job.time, job.gpus) for job in made.seen.values()} == {
        "rule_data_covariance_prepare": ("3000M", "1:00:00", "N/A"),
        "rule_channels_calibrate_spectrum": ("1100M", "22:00", "N/A"),
        "rule_train_wildcards_digits_lenet_natural-4_n8-b16": ("1700M", "1:10:00", "gres:gpu:1"),
    }
    assert json.loads((made.folder / provenance).read_text())["settings"]["replicas"] == 2


def test_tables_are_the_same_whatever_is_killed(slurm, tmp_path):
    config = tmp_path / "chain.yaml"
    config.write_text(json.dumps(CHAIN))
    script = ROOT / "tests" / "benchmarks" / "slurm_faults.py"
    options = ["--configfile", str(config), "--kills", "6", "--coordinators", "1", "--pause", "8", "--jobs", "1"]
    found = subprocess.run([sys.executable, str(script), *options], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr[-5000:]
    report = json.loads(found.stdout)
    assert report["faults"] == {"scancel": 3, "kill": 3, "coordinator": 1}
    assert report["retries"] >= 3
    assert report["tables"] > 20
