"""Labels of the private pool as randomized responses: drawn once for all runs, and part of what a run states."""

import math

import numpy as np
import pytest
from chain import run_jobs, small_study, step

from leakbound import storage
from leakbound.accounting.runs import replay
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.records.records import DatasetError
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.reading import quick
from leakbound_lab.steps.inputs import read_dataset
from leakbound_lab.steps.job_list import job_list

SIZES = {"members": 400, "pool": 1000, "test": 60, "aux": 100, "side": 8}
NATS = 1.0


def prepared(folder, noise: str = "seeded", **config: object):
    settings = {"dataset": "digits", "config": SIZES | config, "seed": 0, "privacy_noise": noise}
    files = {"out": folder / "digits.safetensors", "provenance": folder / "digits.json"}
    step("prepare", settings, **files)
    return read_dataset(folder / "digits.safetensors")


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_each_label_of_the_pool_is_replaced_once_at_the_rate_of_the_response(tmp_path, noise):
    true, drawn = prepared(tmp_path, noise), prepared(tmp_path, noise, label_nats=NATS)
    response = RandomizedResponse.calibrate(10, NATS)
    assert (true.label_nats, drawn.label_nats) == (None, response.capacity)
    for split in ("pool", "aux", "test"):
        assert np.array_equal(getattr(true, split).images, getattr(drawn, split).images)
    assert np.array_equal(true.aux.labels, drawn.aux.labels)
    assert np.array_equal(true.test.labels, drawn.test.labels)
    kept = true.pool.labels == drawn.pool.labels
    slack = 5 * math.sqrt(response.keep * (1 - response.keep) / len(kept))
    assert kept.mean() == pytest.approx(response.keep, abs=slack)
    for replica in range(2):
        rows = drawn.parts(replica).members
        assert np.array_equal(drawn.members(replica).labels, drawn.pool.labels[rows])


def test_a_seed_repeats_responses_and_secure_ones_are_others_each_time(tmp_path):
    for noise in ("seeded", "secure"):
        first, again = (prepared(tmp_path, noise, label_nats=NATS).pool.labels for _ in range(2))
        assert np.array_equal(first, again) == (noise == "seeded")


def test_a_training_states_the_nats_of_responses_instead_of_the_logarithm_of_the_classes(tmp_path, monkeypatch):
    config = small_study("answered", "mlp", {"natural": [8.0]}, privacy_noise="secure", replicas=1)
    config["datasets"]["digits"]["label_nats"] = NATS
    root, _ = run_jobs(tmp_path, config, monkeypatch, {"prepare", "covariance", "spectrum", "calibrate", "train"})
    record = storage.read_json(root / "runs/digits/mlp/natural-8/n5-b16/provenance.json")
    assert record["leakage"]["labels"] == replay(record)[0]["labels"] == pytest.approx(NATS)
    (labels,) = (one for one in record["released"] if one["item"] == "labels")
    assert labels == {"item": "labels", "covered": True, "why": "randomized responses: up to 1 nats on top per record"}


def test_more_nats_than_a_label_holds_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"datasets\.digits\.label_nats: nats = 2\.4: a label of 10 classes holds"):
        prepared(tmp_path, label_nats=2.4)
    with pytest.raises(ValueError, match="canaries with label_nats"):
        DatasetConfig(canaries=10, label_nats=NATS)


def test_settings_of_jobs_without_responses_are_what_they_were():
    assert not any("label_nats" in job.settings["config"] for job in job_list(quick()).of("prepare"))


def test_responses_from_a_seed_are_not_covered(tmp_path, monkeypatch):
    config = small_study("answered", "mlp", {"natural": [8.0]}, replicas=1)
    config["datasets"]["digits"]["label_nats"] = NATS
    root, _ = run_jobs(tmp_path, config, monkeypatch, {"prepare", "covariance", "spectrum", "calibrate", "train"})
    record = storage.read_json(root / "runs/digits/mlp/natural-8/n5-b16/provenance.json")
    assert {one["item"]: one["covered"] for one in record["released"]}["labels"] is False
    assert "no bound: noise from a seed" in record["statement"]["replica"]["sentence"]
