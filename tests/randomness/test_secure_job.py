"""A job with secure noise as the workflow runs it: nothing that it leaves tells how its noise was drawn."""

import logging
import shutil
from pathlib import Path

import pytest

from calling import arguments_of, training_arguments
from leakbound import storage
from leakbound.randomness.seeding import derive_seed
from leakbound_lab.steps.job_list import all_steps
from leakbound_lab.steps.step_command import run_step
from leakbound_lab.training.checkpoint import Checkpoint

STEPS = {step.name: step for step in all_steps()}
SEED = 7_301_994
ROUNDS = 3
DEFENSES = {"white": {"mechanism": "channel", "shape": "white"}, "dpsgd": {"mechanism": "dpsgd"}}


def call(command: str, settings: dict, **files: object) -> None:
    """Call a step with settings and files."""
    arguments = training_arguments(settings) if command == "train" else arguments_of(STEPS[command], settings)
    run_step(STEPS[command], settings, files, arguments)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with small digits, a spectrum and a channel."""
    folder = tmp_path_factory.mktemp("secure")
    images, moments = folder / "digits.safetensors", folder / "moments.safetensors"
    config = {"members": 60, "pool": 160, "test": 60, "aux": 60}
    settings = {"dataset": "digits", "config": config, "seed": SEED, "privacy_noise": "secure"}
    call("prepare", settings, out=images, provenance=folder / "digits.json")
    call("covariance", {}, dataset=images, out=moments)
    weights = {"rows": [12, 20], "columns": [8, 24], "weight": 50.0}
    shape, found = {"shape": "white", "weights": weights}, folder / "spectrum.safetensors"
    call("spectrum", shape, moments=moments, out=found)
    channel = folder / "channel.safetensors"
    files = {"members": moments, "provenance": folder / "channel.json"}
    call("calibrate", {"shape": "white", "capacity": 8.0}, spectrum=found, out=channel, **files)
    return folder


def run_job(prepared: Path, root: Path, name: str, origin: str) -> str:
    """Train as the workflow does; returns the slug."""
    level = {"white": 8.0, "dpsgd": 1.0}[name]
    slug = f"digits/lenet/{name}-{level:g}/n{ROUNDS}-b16"
    folder = root / "runs" / slug
    folder.mkdir(parents=True)
    settings = {
        "dataset": "digits", "model": "lenet", "level": level, "batch_size": 16,
        "seed": SEED, "device": "cpu", "privacy_noise": origin, "defense": DEFENSES[name], "slug": slug,
        "rounds": ROUNDS, "replicas": 2, "training": {"evaluations": 2, "learning_rates": [0.05]},
    }  # fmt: skip
    files = {} if name == "dpsgd" else {key: prepared / f"{key}.safetensors" for key in ("channel", "spectrum")}
    outputs = {"weights": "weights.safetensors", "rows": "training.parquet", "provenance": "provenance.json"}
    outputs |= {"rates": "rates.parquet"}
    files |= {"dataset": prepared / "digits.safetensors"}
    call("train", settings, **files, **{role: folder / file for role, file in outputs.items()})
    return slug


def spellings(number: int) -> list[bytes]:
    """How a seed may stand in a file."""
    return [str(number).encode(), f"{number:x}".encode(), number.to_bytes(8, "little"), number.to_bytes(8, "big")]


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


@pytest.mark.parametrize("name", DEFENSES)
@pytest.mark.parametrize("origin", ["secure", "seeded"])
def test_nothing_that_a_job_leaves_tells_how_secure_noise_was_drawn(
    prepared, tmp_path, keys, checkpoints, caplog, capfd, name, origin
):
    """Of a seeded job the same search finds the seed, in the generators' states of its checkpoints."""
    with caplog.at_level(logging.DEBUG):
        slug = run_job(prepared, tmp_path, name, origin)
    shown = capfd.readouterr()
    left = {**left_in(tmp_path), "log": (caplog.text + shown.out + shown.err).encode()}
    assert len(list(checkpoints.iterdir())) >= 2 * ROUNDS
    secrets = seeds_of(*(("noise", "batches") if name == "dpsgd" else ("noise",)))
    found = {path for path, content in left.items() if any(secret in content for secret in secrets)}
    if origin == "seeded":
        assert found
        assert all(path.startswith("checkpoints") for path in found)
        assert not keys
        return
    assert not found
    assert len(keys) >= 2 * (2 * ROUNDS if name == "dpsgd" else 1)  # batches and noise of each step; blocks of noise
    parts = parts_of(keys)
    assert not [path for path, content in left.items() if any(part in content for part in parts)]
    provenance = storage.read_json(tmp_path / "runs" / slug / "provenance.json")
    assert provenance["settings"]["privacy_noise"] == "secure"
