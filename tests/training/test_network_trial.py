"""Networks from outside: loaded and frozen weights stay, trained ones alone are trained, and what cannot be is told."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakbound_lab import models
from leakbound_lab.attacks.attack_request import AttackRequest, in_full_precision
from leakbound_lab.attacks.gradient_inversion.closed_form import descend
from leakbound_lab.config.defenses import DPSGD
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.registries import MODELS
from leakbound_lab.training import UntrainableError, train
from leakbound_lab.training.batches import ShuffledBatches
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.request import initial_network
from leakbound_lab.training.trainers import network_problems

_DRAWN = torch.Generator().manual_seed(5)
LOADED = {"body.weight": 0.03 * torch.randn(20, 1024, generator=_DRAWN), "body.bias": torch.linspace(-0.1, 0.1, 20)}
HEAD = {"head.weight", "head.bias"}


class Loaded(models.Classifier):
    """A body with loaded weights, trained on, and a new head."""

    def __init__(self, colors, classes):
        super().__init__(colors, classes)
        self.body = nn.Linear(1024, 20)
        self.head = nn.Linear(20, classes)
        self.load_state_dict(LOADED, strict=False)

    def features(self, images):
        return torch.tanh(self.body(images.flatten(1)))


class Tuned(Loaded):
    """Its body is frozen."""

    def __init__(self, colors, classes):
        super().__init__(colors, classes)
        self.body.requires_grad_(False)


class Adapted(Tuned):
    """A low-rank adapter beside the frozen layer."""

    def __init__(self, colors, classes):
        super().__init__(colors, classes)
        self.down = nn.Linear(1024, 2, bias=False)
        self.up = nn.Linear(2, 20, bias=False)
        nn.init.zeros_(self.up.weight)

    def features(self, images):
        pixels = images.flatten(1)
        return torch.tanh(self.body(pixels) + self.up(self.down(pixels)))


class Biased(Tuned):
    """Of the body the bias alone is trained."""

    def __init__(self, colors, classes):
        super().__init__(colors, classes)
        self.body.bias.requires_grad_(True)


class Unusual(Tuned):
    """A parameter and an embedding of its own, a layer with weight norm, and a normalisation that is frozen."""

    def __init__(self, colors, classes):
        super().__init__(colors, classes)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 20))
        self.place = nn.Embedding(2, 20)
        self.mixed = nn.utils.parametrizations.weight_norm(nn.Linear(20, 20))
        self.norm = nn.BatchNorm1d(20).eval().requires_grad_(False)

    def features(self, images):
        seen = self.norm(super().features(images)) * self.scale
        return self.mixed(seen + self.place(torch.ones(1, dtype=torch.long)))


TRAINED = {
    Loaded: HEAD | set(LOADED),
    Tuned: HEAD,
    Adapted: HEAD | {"down.weight", "up.weight"},
    Biased: HEAD | {"body.bias"},
    Unusual: HEAD | {"scale", "place.weight", "mixed.bias"}
    | {f"mixed.parametrizations.weight.original{part}" for part in (0, 1)},
}  # fmt: skip


@pytest.fixture
def own(monkeypatch):
    """Register a network as ``own``."""
    return lambda target: monkeypatch.setitem(MODELS._entries, "own", target)


def built(seed):
    return models.build("own", 1, 10, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", TRAINED)
def test_parameters_are_those_that_are_trained_and_loaded_weights_stay(own, kind):
    own(kind)
    before = torch.get_rng_state()
    first, again, other = (built(seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert {name for name, _ in first.named_parameters()} == set(first.state_dict()) == TRAINED[kind]
    assert torch.equal(first.body.weight, LOADED["body.weight"])
    assert torch.equal(other.body.bias, LOADED["body.bias"])
    assert torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.head.weight, other.head.weight)
    assert network_problems("own", (1, 32, 32), 10, clips=True) == []


def test_a_method_initialize_has_the_last_word_and_the_whole_generator(own):
    class Drawn(Loaded):
        def initialize(self, generator):
            nn.init.normal_(self.body.weight, generator=generator)

    own(Drawn)
    drawn = nn.init.normal_(torch.empty(20, 1024), generator=torch.Generator().manual_seed(3))
    assert torch.equal(built(3).body.weight, drawn)
    assert torch.equal(built(3).body.bias, LOADED["body.bias"])


def test_a_tuned_head_is_trained_like_a_regression_on_its_features(own, request_for, digits):
    own(Tuned)
    request = request_for(model="own", rounds=5, config=request_for().config.model_copy(update={"momentum": 0.0}))
    head = initial_network(request, 0).head
    members = digits.members(0)
    inputs = torch.tanh(torch.from_numpy(members.images).flatten(1) @ LOADED["body.weight"].T + LOADED["body.bias"])
    batches = ShuffledBatches(400, 32, request.generator(0, "batches"))
    for _ in range(5):
        rows = batches.draw()
        loss = F.cross_entropy(head(inputs[rows]), torch.from_numpy(members.labels)[rows])
        for value, slope in zip(head.parameters(), torch.autograd.grad(loss, [*head.parameters()]), strict=True):
            value.data -= 0.05 * slope
    result = train(request)
    torch.testing.assert_close(result.weights["head.weight"][0], head.weight.detach())
    torch.testing.assert_close(result.weights["head.bias"][0], head.bias.detach())


@pytest.mark.parametrize("name", ["none", "dpsgd", "dppsac", "parameter_noise", "gradient_compression", "natural"])
@pytest.mark.parametrize("kind", [Adapted, Unusual])
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # of weight norm, by vmap
def test_every_defense_trains_the_trained_parameters_alone(own, request_for, under, kind, name):
    own(kind)
    request = request_for(model="own", rounds=2, replicas=2, **under(name))
    side_by_side, in_turn = (
        train(dataclasses.replace(request, config=request.config.model_copy(update={"max_stack": size})))
        for size in (2, 1)
    )
    assert set(side_by_side.weights) == TRAINED[kind]
    assert side_by_side.frozen
    for replica in (0, 1):
        first = dict(initial_network(request, replica).named_parameters())
        assert not torch.equal(side_by_side.weights["head.weight"][replica], first["head.weight"])
    torch.testing.assert_close(side_by_side.weights, in_turn.weights, rtol=1e-3, atol=1e-5)


def test_frozen_weights_are_neither_clipped_nor_noised_nor_uploaded(own):
    own(Tuned)
    network = built(0)
    images = torch.rand(1, 3, 1, 32, 32) * 2 - 1
    labels = torch.tensor([[1, 2, 3]])
    defense = DPSGD(max_grad_norm=1e-3)
    upload = client_step(defense, 0.0).upload(network, images, labels, torch.Generator().manual_seed(0))
    assert set(upload.gradients) == HEAD
    norms = sum(value.flatten(1).square().sum(1) for value in record_gradients(network, images[0], labels[0]).values())
    clipped = (record_gradients(network, images[0], labels[0])["head.bias"] / norms.sqrt()[:, None]).mean(0) * 1e-3
    torch.testing.assert_close(upload.gradients["head.bias"][0], clipped)


@pytest.mark.parametrize(("kind", "lowest"), [(Loaded, "body"), (Tuned, "head"), (Biased, "head")])
def test_equations_lead_as_far_down_as_layers_are_trained(own, kind, lowest):
    own(kind)
    network = built(0)
    images = torch.rand(2, 1, 32, 32) * 2 - 1
    solution = descend(network, record_gradients(network, images, torch.tensor([1, 2])), (1, 32, 32))
    assert (solution.layer, solution.complete) == (lowest, kind is Loaded)
    expected = images.flatten(1) if kind is Loaded else network.features(images)
    torch.testing.assert_close(solution.inputs, expected.double(), rtol=1e-3, atol=1e-4)


def test_attention_is_differentiated_twice_in_an_attack():
    @in_full_precision
    def attack(request):
        values = torch.rand(1, 2, 4, 8, requires_grad=True)
        attended = F.scaled_dot_product_attention(values, values, values)
        (slope,) = torch.autograd.grad(attended.square().sum(), values, create_graph=True)
        (second,) = torch.autograd.grad(slope.square().sum(), values)
        return pd.DataFrame(), {"second": second.numpy()}

    _, arrays = attack(object.__new__(AttackRequest))  # on its default device
    assert (arrays["second"] != 0).all()


def changed(name, make):
    """A constructor of a tuned network with another part."""

    def construct(colors, classes):
        network = Tuned(colors, classes)
        setattr(network, name, make())
        return network

    return construct


def computing(features):
    return type("Edited", (Tuned,), {"features": lambda self, images: features(self, Tuned.features(self, images))})


def in_place(network, seen):
    room = torch.zeros(20)
    room[0] = seen[0, 0]
    return seen + 0 * room


def outside_value():
    return nn.Parameter(torch.from_numpy(np.random.default_rng().normal(size=3)).float())


WRONG = {
    "dropout": (computing(lambda net, seen: F.dropout(seen, 0.3, net.training)), "depend on other images, on chance"),
    "mean": (computing(lambda net, seen: seen - seen.mean(0)), "its logits of an image depend on other images"),
    "frozen at random": (
        changed("body", lambda: nn.Linear(1024, 20).requires_grad_(False)),
        "body.weight, body.bias are not trained, but differ between the networks of two seeds; load them from a file",
    ),
    "drawn elsewhere": (changed("more", outside_value), "more differ between two networks of one seed; draw"),
    "all frozen": (changed("head", lambda: nn.Linear(20, 10).requires_grad_(False)), "no parameter that is trained"),
    "no head": (changed("head", nn.Identity), "needs a method features(images) and an attribute head"),
    "in place": (computing(in_place), "own cannot be built, copied or differentiated by torch.func.vmap for images of"),
    "a lost file": (lambda *_: Path("weights.pt").read_bytes(), "FileNotFoundError: [Errno 2] No such file"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_trained_or_attacked_is_told_in_a_sentence(own, request_for, name):
    target, message = WRONG[name]
    own(target)
    with pytest.raises(UntrainableError) as refused:
        train(request_for(model="own"))
    assert message in str(refused.value)
