"""A job with secure noise as the workflow runs it: nothing that it leaves tells how its noise was drawn."""

import logging
import os
import shutil
from pathlib import Path

import pytest
from chain import run_jobs, small_study
from result_command import words_of

from calling import called
from leakbound import storage
from leakbound.randomness.seeding import derive_seed
from leakbound.randomness.sources import KEY_BYTES
from leakbound.training.checkpoint import Checkpoint

SEED = 7_301_994
STEPS = 5
LEVELS = {"white": 8.0, "dpsgd": 1.0}


def spellings(number: int) -> list[bytes]:
    """How a seed may stand in a file."""
    size = 8
    return [str(number).encode(), f"{number:x}".encode(), number.to_bytes(size, "little"), number.to_bytes(size, "big")]


@pytest.fixture
def keys(monkeypatch) -> list[bytes]:
    """All keys that secure noise takes from the operating system from now on."""
    taken, urandom = [], os.urandom

    def watched(count: int) -> bytes:
        drawn = urandom(count)
        if count == KEY_BYTES:
            taken.append(drawn)
        return drawn

    monkeypatch.setattr(os, "urandom", watched)
    return taken


@pytest.fixture
def checkpoints(monkeypatch, tmp_path) -> Path:
    """Folder of copies of all checkpoints, of which there is one after every step."""
    folder, save = tmp_path / "checkpoints", Checkpoint.save
    folder.mkdir()

    def keeping(checkpoint: Checkpoint, content: dict) -> None:
        save(checkpoint, content)
        shutil.copy(checkpoint._path, folder / f"{len(list(folder.iterdir()))}")

    monkeypatch.setattr(Checkpoint, "due", lambda checkpoint: True)
    monkeypatch.setattr(Checkpoint, "save", keeping)
    return folder


def left_in(folder: Path) -> dict[str, bytes]:
    """Content of all files, by path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def seeds_of(*purposes: str) -> list[bytes]:
    """Seeds that noise of a job would have, in all spellings."""
    named = [(replica, purpose) for replica in range(2) for purpose in purposes]
    return [spelling for words in named for spelling in spellings(derive_seed(SEED, "digits", *words))]


def parts_of(keys: list[bytes]) -> list[bytes]:
    """Quarters of keys, in several spellings."""
    quarters = [key[:8] for key in keys]
    return [text for part in quarters for text in (*spellings(int.from_bytes(part, "little")), part.hex().encode())]


def holds(files: dict[str, bytes], words: list[bytes]) -> bool:
    return any(word in content for content in files.values() for word in words)


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("origin", ["secure", "seeded"])
def test_nothing_that_a_job_leaves_tells_how_secure_noise_was_drawn(
    tmp_path, monkeypatch, keys, checkpoints, caplog, name, origin
):
    """Of a seeded job the same search finds the seed, in the generators' states of its checkpoints."""
    config = small_study("noise", "lenet", {name: [LEVELS[name]]}, seed=SEED, replicas=2, privacy_noise=origin)
    before = {"prepare", "covariance", "spectrum", "calibrate"}
    results, jobs = run_jobs(tmp_path / "project", config, monkeypatch, before)
    (job,) = jobs.of("train")
    keys.clear()
    with caplog.at_level(logging.DEBUG):
        outcome = called(*words_of(job))
    assert outcome.code == 0, outcome.err
    kept, saved = left_in(results / "runs"), left_in(checkpoints)
    kept["log"] = (caplog.text + outcome.out + outcome.err).encode()
    assert len(saved) >= 2 * STEPS
    secrets = seeds_of(*(("noise", "batches") if name == "dpsgd" else ("noise",)))
    assert not holds(kept, secrets)
    assert holds(saved, secrets) == (origin == "seeded")
    if origin == "seeded":
        assert not keys
        return
    assert len(keys) >= 2 * (2 * STEPS if name == "dpsgd" else 1)  # batches and noise of each step; blocks of noise
    assert not holds(kept | saved, parts_of(keys))
    (provenance,) = (results / "runs").rglob("provenance.json")
    assert storage.read_json(provenance)["settings"]["privacy_noise"] == "secure"
