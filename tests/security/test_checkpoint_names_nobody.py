"""ε of DP-SGD counts on nobody knowing who was drawn: nothing that a training leaves may tell it."""

import dataclasses
import io

import numpy as np
import pytest
import torch

from asking import training_of
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.config.defenses import DPPSAC, DPSGD
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import ImageDataset, prepare
from leakbound_lab.training import TrainingRequest, train
from leakbound_lab.training.batches import PoissonBatches
from leakbound_lab.training.checkpoint import Checkpoint

MEMBERS, ROUNDS, KILLED = 200, 6, 4


@pytest.fixture(scope="module")
def digits() -> ImageDataset:
    prepared = prepare("digits", DatasetConfig(members=MEMBERS, pool=450, test=40, aux=20), 0)
    return dataclasses.replace(prepared, secret="0" * 64)


def request(dataset: ImageDataset, defense: DPSGD, path) -> TrainingRequest:
    settings = {"level": 1.0, "rounds": ROUNDS, "batch_size": 20, "config": TrainingConfig(evaluations=2)}
    return training_of(dataset, defense=defense, privacy_noise="secure", checkpoint=path, **settings)


def tensors(value) -> list[torch.Tensor]:
    """All tensors in nested plain values, and lists of numbers as such."""
    if isinstance(value, torch.Tensor):
        return [value.flatten()]
    if isinstance(value, dict):
        return [one for inner in value.values() for one in tensors(inner)]
    if isinstance(value, list | tuple):
        if value and all(isinstance(one, int | float) for one in value):
            return [torch.tensor(value)]
        return [one for inner in value for one in tensors(inner)]
    return []


def told_apart(kept: list[torch.Tensor], drawn: np.ndarray) -> float:
    """Largest correlation of anything with one number for each record with how often each was drawn."""
    each = [one.double().numpy() for one in kept if len(one) == MEMBERS]
    return max((abs(np.corrcoef(one, drawn)[0, 1]) for one in each if one.std() > 0), default=0.0)


@pytest.mark.parametrize("defense", [DPSGD(), DPPSAC()], ids=lambda defense: defense.mechanism)
def test_checkpoint_in_mid_training_does_not_tell_who_was_drawn(digits, tmp_path, monkeypatch, defense):
    drawn, taken, draw = np.zeros(MEMBERS), [], PoissonBatches.draw

    def watched(batches: PoissonBatches) -> torch.Tensor:
        if len(taken) == KILLED:
            raise KeyboardInterrupt
        taken.append(draw(batches))
        drawn[taken[-1].numpy()] += 1
        return taken[-1]

    monkeypatch.setattr(Checkpoint, "due", lambda _: True)
    monkeypatch.setattr(PoissonBatches, "draw", watched)
    asked = request(digits, defense, tmp_path / "checkpoint")
    with pytest.raises(KeyboardInterrupt):
        train(asked)
    payload = (tmp_path / "checkpoint").read_bytes()[64 + 32 :]
    content = torch.load(io.BytesIO(payload), weights_only=True)
    assert content["current"]["progress"]["_step"] == KILLED
    state = content["current"]["learner"]
    # The attack finds them where they are kept, as they were before.
    assert told_apart(tensors({**state, "uses": torch.from_numpy(drawn)}), drawn) > 0.99
    assert told_apart(tensors(content), drawn) == 0.0
    assert state["batches"] == {"source": None}
    # Nor is there a list of whole numbers as long as the records that a few steps draw.
    assert max((len(one) for one in tensors(content) if not one.is_floating_point()), default=0) < 10 < drawn.sum()

    monkeypatch.setattr(PoissonBatches, "draw", draw)
    whole = dataclasses.replace(asked, checkpoint=None)
    assert train(asked).events == train(whole).events


def test_event_of_secret_sampling_is_the_same_whoever_was_drawn(digits):
    """Else its largest count of uses would be a statistic of the secret sample."""
    events = {train(request(digits, DPSGD(), None)).events[0] for _ in range(3)}
    assert len(events) == 1
    assert events.pop().uses == ROUNDS
