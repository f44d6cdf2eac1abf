"""`leakbound account` on the provenance of real trainings: computed anew, and refused where it does not add up."""

import json
from pathlib import Path

import numpy as np
import pytest
from chain import run_jobs, small_study

from calling import called
from leakbound import storage
from leakbound.channels import GaussianChannel, Spectrum, composed_capacity, population_moments

ARMS = {"natural": [4.0], "natural_frozen": [4.0], "none": []}
CONFIG = small_study("account", "mlp", ARMS, privacy_noise="secure", replicas=2)
CONFIG["datasets"]["digits"] = {"members": 40, "pool": 100, "test": 40, "aux": 700}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Folder of the results of three trainings."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("account")
        steps = {"prepare", "covariance", "spectrum", "calibrate", "train"}
        return run_jobs(folder, CONFIG, patch, steps)[0]


def provenance(trained: Path, defense: str) -> Path:
    return trained / f"runs/digits/mlp/{defense}/n5-b16/provenance.json"


def channel_files(trained: Path) -> tuple[Path, Path]:
    (channel,) = trained.rglob("*natural-4*.safetensors")
    (spectrum,) = (path for path in trained.rglob("natural.safetensors") if "spectr" in str(path))
    return channel, spectrum


def rows(*words: object) -> list[dict]:
    done = called("account", *map(str, words), "--json")
    assert done.code == 0, done.err
    return json.loads(done.out)["replay"]


@pytest.mark.parametrize(("defense", "looks"), [("natural-4", 2), ("natural_frozen-4", 1)])
def test_a_channel_is_composed_anew_from_its_files(trained, defense, looks):
    channel, spectrum = channel_files(trained)
    one, both = rows(provenance(trained, defense), "--channel", channel, "--spectrum", spectrum)
    assert one["verified"]
    assert (one["uses"], one["looks"], both["looks"]) == (2, looks, 2 * looks)  # 5 batches of 16 use 40 records twice
    assert (one["printed"], one["linear"], both["networks"]) == (5 * 4.0, looks * 4.0, 2)
    source = Spectrum.from_arrays(*storage.read_arrays_and_metadata(spectrum))
    stored = GaussianChannel.from_arrays(*storage.read_arrays_and_metadata(channel), source.basis)
    images = storage.read_arrays(next(trained.rglob("digits.safetensors")))["aux_images"]
    moments = population_moments(images)
    for row in (one, both):
        assert row["joint"] == pytest.approx(composed_capacity([(stored, row["looks"])], moments), rel=1e-6)
        assert row["labels"] == pytest.approx(np.log(10))
        assert row["record"] == pytest.approx(row["joint"] + np.log(10))


def test_without_the_channel_the_stated_bound_is_shown_as_such(trained):
    done = called("account", str(provenance(trained, "natural-4")))
    assert done.code == 0, done.err
    assert "as stated: give --channel and --spectrum" in done.out
    assert "smallest valid bound" in done.out


def test_a_run_without_a_bound_is_refused_with_its_file(trained):
    path = provenance(trained, "none")
    done = called("account", str(path))
    assert done.code == 2
    assert str(path) in done.message
    assert "no bound was derived for 'none'" in done.message
