"""A hash of private records singles the true one out of a list of candidates, unless a secret is hashed with them."""

import dataclasses
import hashlib
import json
import stat
from pathlib import Path

import numpy as np
import pytest
from chain import step
from safetensors.numpy import save

from asking import training_of
from images import repooled
from leakbound import storage
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPSGD
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import ImageDataset, prepare
from leakbound_lab.papers.pmidp import averaging
from leakbound_lab.steps.inputs import read_dataset, write_provenance
from leakbound_lab.training import TrainingRequest, checkpoint, train

CONFIG = {"members": 20, "pool": 50, "test": 20, "aux": 20}
CANDIDATES = 601
ORIGINS = ["seeded", "secure"]


def prepared(folder: Path, origin: str) -> ImageDataset:
    """Images as the command writes them to the folder."""
    settings = {"dataset": "digits", "config": CONFIG, "seed": 0, "privacy_noise": origin}
    files = {"out": folder / "digits.safetensors", "provenance": folder / "digits.json"}
    step("prepare", settings, **files)
    return read_dataset(files["out"])


@pytest.fixture(scope="module")
def guessed() -> list[ImageDataset]:
    """All that an attacker takes for possible who knows every record but the first: digits in 601 places."""
    truth = prepare("digits", DatasetConfig(**CONFIG), 0)
    others = prepare("digits", DatasetConfig(pool=CANDIDATES, test=20, aux=20), 1).pool.images
    first, known = truth.pool.images[0], truth.pool.images[1:]
    possible = [first, *[one for one in others if not np.array_equal(one, first)]][:CANDIDATES]
    return [repooled(truth, np.concatenate([one[None], known])) for one in possible]


def left(guessed: list[ImageDataset], stated: str, guess) -> int:
    """Candidates whose hash is the one that was found."""
    hashes = [guess(dataset) for dataset in guessed]
    assert len(set(hashes)) == CANDIDATES
    return hashes.count(stated)


def file_hash_of(dataset: ImageDataset) -> str:
    """SHA-256 of the file that `prepare` writes for a dataset, as far as an attacker can build it."""
    drawing = dataclasses.asdict(dataset.drawing)
    told = {"name": dataset.name, "classes": json.dumps(dataset.classes), "drawing": json.dumps(drawing)}
    told |= {"content": dataset.content_hash()}
    strings = {"strings": json.dumps({**told, "secret": ""}, sort_keys=True)}
    return hashlib.sha256(save(dict(sorted(dataset.arrays().items())), strings)).hexdigest()


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("place", ["content", "inputs", "seal"])
def test_hash_singles_out_a_record_of_public_data_and_none_of_secret_ones(tmp_path, guessed, origin, place):
    prepared(tmp_path, origin)
    file = tmp_path / "digits.safetensors"
    write_provenance(tmp_path / "run.json", {}, {"dataset": file}, None, 0.0)
    stated = {
        "content": storage.read_json(tmp_path / "digits.json")["content"],
        "inputs": storage.read_json(tmp_path / "run.json")["inputs"]["dataset"],
        "seal": storage.seal_of(file).read_text().split()[0],
    }
    guess = ImageDataset.content_hash if place == "content" else file_hash_of
    assert left(guessed, stated[place], guess) == (1 if origin == "seeded" else 0)


def request(dataset: ImageDataset, origin: str, **changes) -> TrainingRequest:
    settings = {"defense": DPSGD(), "level": 1.0, "rounds": 2, "batch_size": 10}
    settings |= {"config": TrainingConfig(evaluations=2), "privacy_noise": origin}
    return training_of(dataset, **settings | changes)


@pytest.mark.parametrize("origin", ORIGINS)
def test_identity_of_a_checkpoint_singles_out_a_record_of_public_data_alone(tmp_path, guessed, origin, monkeypatch):
    monkeypatch.setattr(checkpoint.Checkpoint, "due", lambda _: True)
    dataset = prepared(tmp_path, origin)
    kept = tmp_path / "checkpoint"
    train(request(dataset, origin, checkpoint=kept))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    stated = kept.read_bytes()[:64].decode()
    assert stated == checkpoint.fingerprint(request(dataset, origin))
    # The attacker has the code, and no secret to give it.
    monkeypatch.setattr(checkpoint, "records_hash", lambda dataset, arrays, _: storage.arrays_hash(arrays))
    found = left(guessed, stated, lambda dataset: checkpoint.fingerprint(request(dataset, origin)))
    assert found == (1 if origin == "seeded" else 0)


def test_secrets_are_drawn_anew_stay_with_the_records_and_are_readable_by_nobody_else(tmp_path):
    secrets = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        secrets.append(prepared(tmp_path / name, "secure").secret)
        for file in ("digits.safetensors", "digits.json"):
            assert stat.S_IMODE((tmp_path / name / file).stat().st_mode) == 0o600
        assert secrets[-1] not in (tmp_path / name / "digits.json").read_text()
    assert len({*secrets, ""}) == 3
    assert min(map(len, secrets)) == 64
    assert prepared(tmp_path / "one", "seeded").secret == ""


def test_checkpoint_of_secure_noise_is_refused_without_a_secret_before_anything_is_trained(tmp_path):
    dataset, kept = prepare("digits", DatasetConfig(**CONFIG), 0), {"checkpoint": tmp_path / "kept"}
    facts = {"dataset": "digits", "model": "mlp", "scheme": "client", "n_clients": 2}
    run = averaging.FederatedRun(**facts, max_param_norm=4.0, mi_budget=2000.0)
    config = averaging.FederatedConfig(communication_rounds=1)
    common = {"seed": 0, "privacy_noise": "secure", **kept}
    federation = averaging.FederatedRequest(run=run, config=config, records=10, dataset=dataset, **common)
    for start, asked in ((train, request(dataset, "secure", **kept)), (averaging.train_federation, federation)):
        with pytest.raises(ValueError, match="digits: a checkpoint under secure noise needs a dataset with a secret"):
            start(asked)
    assert not list(tmp_path.iterdir())


def test_training_of_secret_records_resumes_from_its_own_checkpoint_alone(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint.Checkpoint, "due", lambda _: True)
    dataset = prepared(tmp_path, "secure")
    again = read_dataset(tmp_path / "digits.safetensors")
    asked = request(dataset, "secure", checkpoint=tmp_path / "kept")
    first = train(asked)
    caplog.clear()
    resumed = train(dataclasses.replace(asked, dataset=again))  # nothing is left to train
    assert all((first.weights[name] == resumed.weights[name]).all() for name in first.weights)
    train(dataclasses.replace(asked, dataset=dataclasses.replace(again, secret="0" * 64)))
    assert "checkpoint of other settings, images or versions" in caplog.text
