"""What a channel is made from is known to everybody who sees it: it must tell nothing of who the members are."""

import dataclasses
import json
import os
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chain import step
from sklearn.metrics import roc_auc_score

from formulas import distances
from leakbound import storage
from leakbound.channels import Moments, estimate_moments, population_moments
from leakbound.commands.files import read_spectrum
from leakbound_lab import datasets
from leakbound_lab.claims.evaluation import COLUMNS
from leakbound_lab.config import reading
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import ImageDataset, Split
from leakbound_lab.figures.report.page import Report, page
from leakbound_lab.steps.inputs import read_moments
from leakbound_lab.steps.job_list import job_list

MEMBERS = 40
SHAPE = {"shape": "white", "weights": {"rows": [12, 20], "columns": [8, 24], "weight": 50.0}}


@pytest.fixture(scope="module")
def digits() -> ImageDataset:
    """A pool of fewer records than the 61 directions in which digits vary, and 200 records of the same law."""
    return datasets.prepare("digits", DatasetConfig(pool=MEMBERS, members=15, validation=10, test=200, aux=600), seed=0)


def write(folder: Path, dataset: ImageDataset) -> Path:
    path = folder / "digits.safetensors"
    drawing = json.dumps(dataclasses.asdict(dataset.drawing))
    told = {"name": dataset.name, "classes": json.dumps(dataset.classes), "drawing": drawing}
    storage.write_arrays(path, dataset.arrays(), {**told, "secret": dataset.secret})
    return path


@pytest.fixture(scope="module")
def made_channel(digits, tmp_path_factory):
    """Makes moments, spectrum and channel of a dataset as the workflow does; moments of aux once unless told anew."""
    known = tmp_path_factory.mktemp("known") / "aux.safetensors"
    step("covariance", {"covariance": "aux"}, dataset=write(known.parent, digits), out=known)

    def made(folder: Path, dataset: ImageDataset, covariance: str = "aux", anew: bool = False) -> Path:
        folder.mkdir(exist_ok=True)
        images = write(folder, dataset)
        files = {"aux": folder / "aux.safetensors" if anew else known, "members": folder / "members.safetensors"}
        for of, path in files.items():
            if path != known:
                step("covariance", {"covariance": of}, dataset=images, out=path)
        step("spectrum", SHAPE, moments=files[covariance], out=folder / "spectrum.safetensors")
        read = {"spectrum": folder / "spectrum.safetensors", "members": files["members"]}
        written = {"out": folder / "channel.safetensors", "provenance": folder / "channel.json"}
        step("calibrate", {"shape": "white", "capacity": 8.0, "accept_capacity": 100.0}, **read, **written)
        return folder

    return made


def membership_auc(folder: Path, dataset: ImageDataset) -> float:
    """AUC of an attacker who sees nothing but the published spectrum: its mean and principal directions."""
    found = read_spectrum(folder / "spectrum.safetensors")
    published = Moments(found.mean, (found.basis * found.data_eigenvalues) @ found.basis.T, MEMBERS)
    told = [distances(published, split.images) for split in (dataset.pool, dataset.test)]
    truth = np.repeat([1, 0], [len(one) for one in told])
    return float(roc_auc_score(truth, -np.concatenate(told)))


def test_span_of_the_members_moments_tells_every_member_and_that_of_aux_none(digits, made_channel, tmp_path):
    """Members and others are drawn alike, so that without knowledge an AUC of 40 and 200 is within .5 ± .15."""
    published = {}
    for covariance in ("aux", "members"):
        published[covariance] = membership_auc(made_channel(tmp_path / covariance, digits, covariance), digits)
    assert published["members"] == 1.0
    assert abs(published["aux"] - 0.5) < 0.15


def test_channels_of_a_configuration_are_made_from_aux_unless_it_says_members():
    for settings, of in (({}, "aux"), ({"covariance": "aux"}, "aux"), ({"covariance": "members"}, "members")):
        config = reading.quick().model_copy(update=settings)
        made = job_list(config)
        assert made.of("spectrum")
        assert {job.inputs["moments"].rpartition("/")[2] for job in made.of("spectrum")} == {f"{of}.safetensors"}
        reading_members = {job.step for job in made if any("/members." in path for path in job.input_files())}
        # Capacities of members stand in a provenance of their own; illustrations and attacks make no channels.
        assert ("spectrum" in reading_members) == (of == "members")
        assert reading_members <= {"spectrum", "calibrate", "illustrate", "attack"}


@pytest.mark.parametrize("covariance", ["aux", "members"])
def test_channel_of_aux_is_the_same_bytes_whoever_the_members_are(digits, made_channel, tmp_path, covariance):
    others = dataclasses.replace(digits, pool=Split(digits.test.images[:MEMBERS], digits.test.labels[:MEMBERS]))
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder, dataset in zip(folders, (digits, others), strict=True):
        made_channel(folder, dataset, covariance, anew=covariance == "aux" and dataset is others)
    for name in ("spectrum.safetensors", "channel.safetensors"):
        same = (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
        assert same == (covariance == "aux")
        assert storage.read_metadata(folders[0] / name)["covariance_of"] == covariance
    own = [storage.read_json(folder / "channel.json") for folder in folders]
    assert own[0]["capacity_of_members"] != own[1]["capacity_of_members"]
    assert {one["covariance_of"] for one in own} == {covariance}


def test_mean_of_the_members_gives_the_last_record_to_who_knows_the_others_and_that_of_aux_does_not(digits):
    known = digits.pool.images[1:].reshape(MEMBERS - 1, -1).sum(axis=0, dtype=np.float64)
    wanted = digits.pool.images[0].ravel()
    for tells in (True, False):
        mean = (estimate_moments([digits.pool.images]) if tells else population_moments(digits.aux.images)).mean
        error = np.abs(MEMBERS * mean - known - wanted).max()
        assert (error < 1e-6) == tells


def test_capacity_under_the_members_own_law_is_stated_and_warned_of(digits, made_channel, tmp_path, caplog):
    """The channel is made for digits; members of thrice the contrast get more through it than it says."""
    loud = dataclasses.replace(digits, pool=Split(3 * digits.pool.images, digits.pool.labels))
    cases = {"quiet": (digits, "members"), "loud": (loud, "aux")}
    for name, (dataset, covariance) in cases.items():
        caplog.clear()
        made_channel(tmp_path / name, dataset, covariance)
        record = storage.read_json(tmp_path / name / "channel.json")
        own, exact = record["capacity_of_members"], read_moments(tmp_path / name / "members.safetensors")
        stored = storage.read_arrays(tmp_path / name / "channel.safetensors")["variances"]
        basis = read_spectrum(tmp_path / name / "spectrum.safetensors").basis
        noise = basis @ np.diag(stored) @ basis.T
        determinant = np.linalg.slogdet(np.eye(len(noise)) + np.linalg.solve(noise, exact.covariance))[1]
        assert own == pytest.approx(0.5 * determinant, rel=1e-3)
        assert record["capacity"] == 8.0
        assert record["reached"] == pytest.approx(8.0, rel=1e-9)
        assert (record["warning"] is None) == (name == "quiet") == (caplog.text == "")
    assert f"reveals {own:.4g} nats, not 8" in record["warning"]
    assert f"{own:.3g}" not in caplog.text  # a statistic of the members
    metadata = storage.read_metadata(tmp_path / "loud" / "channel.safetensors")
    assert set(metadata) == {"shape", "capacity", "axes", "reached", "covariance_of", "accept_capacity"}


def test_moments_of_secret_members_are_read_by_nobody_else(digits, made_channel, tmp_path):
    made_channel(tmp_path, dataclasses.replace(digits, secret="5" * 64), anew=True)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*.*")}
    assert modes["members.safetensors"] == modes["channel.json"] == 0o600
    held = {path.name: b"5" * 64 in path.read_bytes() for path in tmp_path.glob("*.*")}
    assert [name for name, found in held.items() if found and name != "digits.safetensors"] == ["members.safetensors"]


@pytest.mark.slow
@pytest.mark.skipif("LEAKBOUND_DATA" not in os.environ, reason="needs CIFAR-10 in LEAKBOUND_DATA")
def test_moments_of_members_of_cifar10_tell_who_they_are_as_the_guide_says():
    images = datasets.prepare("cifar10", DatasetConfig(pool=10_000, test=1000, aux=1000), 0)
    truth = np.repeat([1, 0], 1000)
    shown = np.concatenate([images.pool.images[:1000], images.test.images])
    for members, least, most in ((2000, 1.0, 1.0), (10_000, 0.65, 0.68)):
        exact = estimate_moments(np.array_split(images.pool.images[:members], 8))
        assert least <= roc_auc_score(truth, -distances(exact, shown)) <= most
    others = population_moments(images.aux.images)
    assert abs(roc_auc_score(truth, -distances(others, shown)) - 0.5) < 0.05  # four standard errors


@pytest.mark.parametrize("covariance", ["aux", "members"])
def test_report_warns_of_channels_that_are_made_from_members(covariance):
    config = reading.quick().model_copy(update={"covariance": covariance})
    facts = {"commits": {}, "dirty": False, "devices": {}, "versions": {}, "steps": {}, "data": {}, "preset": "quick"}
    facts |= {"config_hash": "", "jobs": 0, "diverged_replicas": 0}
    text = page(Report(config, [], pd.DataFrame(columns=list(COLUMNS)), facts))
    assert ("such a channel gives\nits members away" in text) == (covariance == "members")
