"""Requests of trainings and attacks with what most of them share, and channels and networks that they are about."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakbound.randomness.seeding import torch_generator
from leakbound.registry import SHAPES
from leakbound_lab.attacks.attack_request import AttackRequest
from leakbound_lab.attacks.membership.signals import Signals
from leakbound_lab.config.defenses import Undefended
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.models import build
from leakbound_lab.training import TrainingRequest
from leakbound_lab.training.checkpoint import Checkpoint
from leakbound_lab.training.stack import stacked

SHARED = {"seed": 0, "slug": "run"}


def training_of(dataset, model="mlp", rate=0.05, **changes) -> TrainingRequest:
    """A training without a defense at one rate, evaluated at its end."""
    settings = {"dataset": dataset, "model": model, "learning_rates": (rate,), "config": TrainingConfig(evaluations=1)}
    return TrainingRequest(**{"defense": Undefended(), "level": None} | SHARED | settings | changes)


def attack_of(dataset, config, model="lenet", **changes) -> AttackRequest:
    return AttackRequest(**SHARED | {"dataset": dataset, "config": config, "model": model} | changes)


def weights_of(networks) -> dict[str, torch.Tensor]:
    """Weights of networks of one architecture as a training leaves them."""
    return {name: value.detach() for name, value in stacked(networks).items()}


def untrained(count=1) -> dict[str, torch.Tensor]:
    """Weights of LeNets for digits that have seen no record."""
    return weights_of([build("lenet", 1, 10, torch_generator(slot, "weights")) for slot in range(count)])


def trained_lenet(dataset, replica=0, steps=120) -> nn.Module:
    """LeNet after some steps on the members of a replica."""
    network = build("lenet", dataset.colors, len(dataset.classes), torch_generator(replica, "weights"))
    members, batches = dataset.members(replica), torch_generator(replica, "batches")
    images, labels = torch.from_numpy(members.images), torch.from_numpy(members.labels)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(steps):
        batch = torch.randint(len(images), (64,), generator=batches)
        optimizer.zero_grad()
        F.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
    return network


def resumed(monkeypatch, kind, method, calls, work):
    """Interrupt work with a checkpoint after each step at a call of a method, and do it again from there.

    Returns:
        What the work then returns, and how often the method was called in it.
    """
    called, made = getattr(kind, method), []

    def interrupted(learner):
        if len(made) == calls:
            raise KeyboardInterrupt
        made.append(learner)
        return called(learner)

    def counted(learner):
        made.append(learner)
        return called(learner)

    monkeypatch.setattr(Checkpoint, "due", lambda checkpoint: checkpoint._path is not None)
    monkeypatch.setattr(kind, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        work()
    made.clear()
    monkeypatch.setattr(kind, method, counted)
    return work(), len(made)


def calibrated(moments, capacity, shape="natural", weights=None):
    """The channel of a shape and capacity for records with these moments."""
    kind = SHAPES.get(shape)
    return kind.calibrate(kind.decompose(moments, weights=weights), capacity)


def made_up(generator, count=300, width=6, shift=0.0) -> Signals:
    """Signals of members and as many others in four classes, which differ only in how confident the model is."""
    logits = torch.randn(2 * count, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2 * count,), generator=generator)
    truth = F.one_hot(labels, 4).double()
    logits[:count] += shift * truth[:count]
    others = logits.masked_fill(truth.bool(), -torch.inf).logsumexp(1)
    features = torch.randn(2 * count, width, generator=generator, dtype=torch.float64)
    return Signals(logits.log_softmax(1), logits[truth.bool()] - others, features, labels)


class CalledTwice(nn.Module):
    """One layer is called twice, which factors of single calls would get wrong."""

    def __init__(self, colors=1, side=32):
        super().__init__()
        self.conv, self.head = nn.Conv2d(colors, colors, 3, padding=1), nn.Linear(colors * side**2, 10)

    def forward(self, images):
        return self.head(torch.sigmoid(self.conv(torch.sigmoid(self.conv(images)))).flatten(1))
