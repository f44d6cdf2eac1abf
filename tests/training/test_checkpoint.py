import dataclasses
import logging
import multiprocessing
import random
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from images import repooled
from leakbound import storage
from leakbound_lab.config.defenses import ChannelDefense, ChannelDPSGD, EarlyStopping
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.training import train
from leakbound_lab.training.checkpoint import Checkpoint, fingerprint

OFTEN = {"checkpoint_seconds": 0.001}
IDENTITY = "0" * 64


@pytest.fixture(scope="module")
def processes():
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["leakbound_lab.training.per_sample", "leakbound_lab.datasets", "pytest", "pyarrow.parquet"]
    )
    return context


def train_and_store(request, out: Path) -> None:
    torch.set_num_threads(1)
    result = train(request)
    storage.write_rows(out / "curves.parquet", result.curves)
    storage.write_json(out / "events.json", [event.to_dict() for event in result.events])
    storage.write_arrays(out / "weights.safetensors", {name: value.numpy() for name, value in result.weights.items()})


def stored(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def train_in(processes, request, out: Path) -> None:
    child = processes.Process(target=train_and_store, args=(request, out))
    child.start()
    child.join()
    assert child.exitcode == 0


def run_until_saved(processes, request, out: Path, chance: random.Random) -> bool:
    """Start a training and kill it at a random moment after its next save; False if it ended before."""
    before = request.checkpoint.stat().st_mtime_ns if request.checkpoint.exists() else 0
    child = processes.Process(target=train_and_store, args=(request, out))
    child.start()
    while child.is_alive() and not (request.checkpoint.exists() and request.checkpoint.stat().st_mtime_ns > before):
        time.sleep(0.002)
    time.sleep(chance.uniform(0, 0.1))
    child.kill()
    child.join()
    return child.exitcode != 0


@pytest.mark.parametrize(
    "case",
    [
        "white",
        "dpsgd",
        "channel_dpsgd",
        *(pytest.param(case, marks=pytest.mark.slow) for case in ("early", "frozen", "parameter_noise", "largest")),
    ],
)
def test_killed_training_goes_on_and_ends_with_the_same_bytes(processes, request_for, channel, under, tmp_path, case):
    stacked = {"channel_dpsgd", "frozen", "largest"}
    training = {**OFTEN, "evaluations": 3} | ({"max_stack": 2} if case in stacked else {})
    changes = {
        "frozen": under("rate_distortion_frozen"),
        "dpsgd": under("dpsgd") | {"lengths": ("half", "best", "full")},
        "channel_dpsgd": {"defense": ChannelDPSGD(capacity=8.0), "level": 1.0, "channel": channel("natural", 8.0)},
        "early": {"defense": EarlyStopping(), "learning_rates": (0.01, 0.05)},
        "largest": under("gradient_compression"),
    }
    request = request_for(rounds=12, replicas=2, training=training, **changes.get(case) or under(case))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    train_in(processes, request, whole)
    resumable = dataclasses.replace(request, checkpoint=tmp_path / "run" / "checkpoint")
    chance = random.Random(case)
    kills = 0
    while run_until_saved(processes, resumable, killed, chance) and kills < 3:
        kills += 1
    train_in(processes, resumable, killed)
    assert kills >= 2
    assert stored(killed) == stored(whole)
    assert [path.name for path in resumable.checkpoint.parent.iterdir()] == ["checkpoint"]


def test_checkpoint_of_another_run_is_ignored(request_for, tmp_path, caplog):
    request = request_for(rounds=6, training=OFTEN, checkpoint=tmp_path / "checkpoint")
    train(request)
    request = dataclasses.replace(request, learning_rates=(0.01,))
    with caplog.at_level(logging.WARNING, "leakbound"):
        resumed = train(request)
    assert "checkpoint of other settings" in caplog.text
    fresh = train(dataclasses.replace(request, checkpoint=None))
    assert all(torch.equal(resumed.weights[name], fresh.weights[name]) for name in fresh.weights)


def test_checkpoint_is_used_only_if_it_is_whole_and_of_this_training(tmp_path, caplog):
    path = tmp_path / "checkpoint"
    content = {"rows": [(0, 1, "loss", 0.5)], "tensor": torch.arange(4.0), "nested": {1: [None, True]}}
    Checkpoint(path, IDENTITY, 1.0).save(content)
    whole = path.read_bytes()
    begin = len(IDENTITY) + 32  # of what torch saved, behind identity and digest
    cuts = [whole[:length] for length in (0, 1, len(IDENTITY), begin - 1, begin, begin + 1, len(whole) - 1)]
    flips = []
    for position in (0, len(IDENTITY) - 1, len(IDENTITY), begin - 1, begin, len(whole) // 2, len(whole) - 1):
        flips.append(bytearray(whole))
        flips[-1][position] ^= 1
    for damaged in (*cuts, *map(bytes, flips), whole + b"\0"):
        path.write_bytes(damaged)
        caplog.clear()
        assert Checkpoint(path, IDENTITY, 1.0).load() is None
        assert "training starts from scratch" in caplog.text
    path.write_bytes(whole)
    assert Checkpoint(path, "1" * 64, 1.0).load() is None  # in the place of another run's
    loaded = Checkpoint(path, IDENTITY, 1.0).load()
    assert torch.equal(loaded.pop("tensor"), content.pop("tensor"))
    assert loaded == content


def test_checkpoint_waits_between_saves(tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", IDENTITY, 3600.0)
    assert not checkpoint.due()
    eager = Checkpoint(tmp_path / "checkpoint", IDENTITY, 0.0)
    assert eager.due()
    eager.save({})
    assert not Checkpoint(None, IDENTITY, 0.0).due()


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 5}, {"level": 9.0}, {"seed": 8}, {"slug": "other"}, {"learning_rates": (0.05, 0.2)}, {"replicas": 2},
        {"batch_size": 16}, {"model": "lenet_sigmoid"}, {"config": TrainingConfig(momentum=0.5)},
        {"config": TrainingConfig(precision="bfloat16")},
        {"defense": ChannelDefense(noise="frozen")}, {"privacy_noise": "secure"},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_fingerprint_sees_every_setting(request_for, through, change):
    request = request_for(**through("natural"))
    assert fingerprint(dataclasses.replace(request, **change)) != fingerprint(request)


def test_fingerprint_sees_images_and_channel_but_not_the_spacing_of_checkpoints(request_for, digits, through, channel):
    request = request_for(**through("natural"))
    spaced = request_for(**{**vars(request), "training": {"checkpoint_seconds": 5.0}})
    assert fingerprint(spaced) == fingerprint(request)
    images = digits.pool.images.copy()
    images[17, 0, 3, 3] += np.float32(0.01)
    redrawn = dataclasses.replace(digits, drawing=dataclasses.replace(digits.drawing, seed=1))
    for other in (repooled(digits, images), redrawn):
        assert fingerprint(dataclasses.replace(request, dataset=other)) != fingerprint(request)
    assert fingerprint(dataclasses.replace(request, channel=channel("natural", 4.0))) != fingerprint(request)
