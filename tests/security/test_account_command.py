"""`leakbound account` on the provenance of a real training: computed anew from its channel, or as it is stated."""

import json

import numpy as np
import pytest
from chain import run_jobs, small_study

from calling import succeeded
from leakbound import storage
from leakbound.channels import GaussianChannel, Spectrum, composed_capacity, population_moments

CONFIG = small_study("account", "mlp", {"natural": [4.0]}, privacy_noise="secure", replicas=2)
CONFIG["datasets"]["digits"] = {"members": 40, "pool": 100, "test": 40, "aux": 700}


@pytest.mark.slow
def test_a_channel_is_composed_anew_from_its_files_and_without_them_shown_as_stated(tmp_path, monkeypatch):
    trained, _ = run_jobs(tmp_path, CONFIG, monkeypatch, {"prepare", "covariance", "spectrum", "calibrate", "train"})
    provenance = trained / "runs/digits/mlp/natural-4/n5-b16/provenance.json"
    done = succeeded("account", provenance)
    assert "as stated: give --channel and --spectrum" in done.out
    (channel,) = trained.rglob("*natural-4*.safetensors")
    (spectrum,) = (path for path in trained.rglob("natural.safetensors") if "spectr" in str(path))
    words = (provenance, "--channel", channel, "--spectrum", spectrum, "--json")
    one, both = json.loads(succeeded("account", *words).out)["replay"]
    assert one["verified"]
    assert (one["uses"], both["fresh_uses"], both["networks"]) == (2, 4, 2)  # 5 batches of 16 use 40 records twice
    source = Spectrum.from_arrays(*storage.read_arrays_and_metadata(spectrum))
    stored = GaussianChannel.from_arrays(*storage.read_arrays_and_metadata(channel), source.basis)
    images = storage.read_arrays(next(trained.rglob("digits.safetensors")))["aux_images"]
    moments = population_moments(images)
    for row in (one, both):
        assert row["joint"] == pytest.approx(composed_capacity([(stored, row["fresh_uses"])], moments), rel=1e-6)
        assert row["record"] == pytest.approx(row["joint"] + np.log(10))
