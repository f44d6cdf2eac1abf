"""Model inversion of several replicas in one stack, as on a GPU, finds what it finds one by one."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from asking import attack_of, untrained, weights_of
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import datasets, models
from leakbound_lab.attacks.model_inversion import attack as model_inversion
from leakbound_lab.attacks.model_inversion import queries
from leakbound_lab.attacks.model_inversion.queries import AnsweringNetworks, Inversion, Slopes, invert, joined_inversion
from leakbound_lab.config.attacks import ModelInversionConfig
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.models import memory
from leakbound_lab.models.layers import written_out
from operations import of_further_steps, waits_of_adam

ROUNDING = {"rtol": 1e-7, "atol": 1e-7}


def networks(name, count):
    """Parameters in float64, where no other formula hides behind rounding, and the architecture."""
    made = [models.build(name, 1, 10, torch_generator(slot, "weights")).double().eval() for slot in range(count)]
    return made[0], weights_of(made)


def drawn(slot, count):
    images = torch.rand(count, 1, 32, 32, dtype=torch.float64, generator=torch_generator(slot, "images"))
    return torch.arange(count) + slot, images * 2 - 1


def search(slot, count, moments):
    weights, bounds = torch.tensor([0.0, 1e-2, 1e-1]).double(), torch.tensor([torch.inf, 1.0, 0.5]).double()
    return Inversion(slot, *drawn(slot, count), weights[:count], bounds[:count], 0.05, moments)


@pytest.mark.parametrize(
    ("name", "counts", "moments"),
    [("lenet", (3, 1, 2), [1, 2]), ("mlp", (1, 3), [1, 2]), ("cnn", (2, 3), [2]), ("resnet10", (1, 1), [1])],
)
def test_answers_of_a_stack_are_those_of_each_network(name, counts, moments):
    model, params = networks(name, len(counts))
    assert written_out(model, params, torch.zeros(len(counts), 1, 1, 32, 32, dtype=torch.float64)) is not None
    queries = [search(slot, count, moments) for slot, count in enumerate(counts)]
    slopes = [Slopes(slot, *drawn(slot, count)) for slot, count in enumerate(counts)]
    together, alone = (AnsweringNetworks(model, params, most).answers([queries, slopes]) for most in (len(counts), 1))
    torch.testing.assert_close(together[0], alone[0], **ROUNDING)
    assert [trace.shape for trace in together[0]] == [(len(moments), count, 1, 32, 32) for count in counts]
    for own, (losses, gradients) in zip(slopes, together[1], strict=True):
        expected = own.images.clone().requires_grad_()
        parameters = {key: value[own.slot] for key, value in params.items()}
        logits = torch.func.functional_call(model, parameters, (expected,))
        exact = torch.nn.functional.cross_entropy(logits, own.labels, reduction="none")
        torch.testing.assert_close(losses, exact.detach(), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(gradients, torch.autograd.grad(exact.sum(), expected)[0], rtol=1e-9, atol=1e-12)


class Normalised(nn.Module):
    """A layer that is not written out; with ``looks`` also a glance at a value, which ``vmap`` does not know."""

    def __init__(self, looks):
        super().__init__()
        self.layer, self.norm, self.head, self.looks = nn.Linear(1024, 8), nn.LayerNorm(8), nn.Linear(8, 10), looks

    def forward(self, images):
        hidden = self.norm(self.layer(images.flatten(1)))
        return self.head(hidden if not self.looks or hidden.sum().item() < 1e9 else -hidden)


@pytest.mark.parametrize("looks", [False, True])
def test_other_networks_are_left_to_vmap_or_asked_one_by_one(looks, caplog):
    caplog.set_level("INFO", "leakbound")
    made = []
    for slot in range(3):
        model = Normalised(looks).double()
        models.initialize(model, torch_generator(slot))
        made.append(model)
    params = weights_of(made)
    queries = [search(slot, 2, [2]) for slot in range(3)]
    (together,), (alone,) = (AnsweringNetworks(made[0], params, most).answers([queries]) for most in (3, 1))
    torch.testing.assert_close(together, alone, **ROUNDING)
    assert ("divided into two" in caplog.text) == looks


class Narrow(nn.Module):
    """A network on a device that holds eight images."""

    def __init__(self):
        super().__init__()
        self.head, self.seen = nn.Linear(1024, 10), []

    def forward(self, images):
        if len(images) > 8:
            raise torch.OutOfMemoryError
        self.seen.append(len(images))
        return self.head(images.flatten(1))


def test_images_that_memory_does_not_hold_at_once_are_inverted_in_pieces():
    """Nine images of one network, of which its device holds eight: none influences another."""
    model = Narrow().double()
    # Equal weights of all classes would leave slopes of rounding alone, whose signs Adam's first steps follow.
    weights = torch.rand(1, 10, 1024, generator=torch_generator(0, "weights")).double()
    params = {"head.weight": weights, "head.bias": torch.arange(10).view(1, 10).double()}
    parts = [search(0, 3, [1, 3]) for _ in range(3)]
    ((whole,),) = AnsweringNetworks(model, params, 1).answers([[joined_inversion(parts)]])
    assert max(model.seen) <= 8
    ((first, *_),) = AnsweringNetworks(model, params, 1).answers([parts])
    torch.testing.assert_close([whole], [np.concatenate([first] * 3, axis=1)], **ROUNDING)


def test_operations_of_a_step_do_not_grow_with_the_replicas():
    def search(steps, slots):
        model, params = networks("lenet", slots)
        labels, images = drawn(0, 2 * slots)
        weights = torch.full((2 * slots,), 0.01).double()
        told = {"bounds": torch.ones_like(weights), "learning_rate": 0.1, "moments": [steps]}
        invert(model, params, labels % 10, images, weights, **told)

    two, five = (of_further_steps(partial(search, slots=slots), 2, 3) for slots in (2, 5))
    assert two == five
    assert two[0]["convolution"] == two[0]["convolution_backward"] == 2
    assert two[0].total() <= 70
    assert two[1] == waits_of_adam(1)


def test_searches_of_one_network_and_replicas_of_a_stack_are_one_batch_on_a_gpu(monkeypatch):
    """Further weights wait until all attackers have tried them, and what goes on longer goes on together.

    One replica has diverged, and of another one class has no slope at its start.
    """
    weights = untrained(4)
    weights["head.bias"][1, 0] = torch.nan
    weights["conv1.weight"][2], weights["conv1.bias"][2] = 0.0, -1.0
    config = ModelInversionConfig(iterations=4, tv_weights=(0.0, 1e-2, 1.0), learning_rate=0.3)
    digits = datasets.prepare("digits", DatasetConfig(members=60, aux=60), seed=0)  # some turn a unit by rounding
    request, found, sizes = attack_of(digits, config, weights=weights, replicas=range(4)), [], []

    def counted(model, params, labels, *others, **settings):
        sizes[-1].append(len(labels))
        return invert(model, params, labels, *others, **settings)

    monkeypatch.setattr(queries, "invert", counted)
    for most, stack in ((1, 1), (1000, 1), (1000, 2)):
        monkeypatch.setattr(model_inversion, "SEARCHES_SIDE_BY_SIDE", memory.DeviceLimit(most, most))
        monkeypatch.setattr(model_inversion, "stack_size", lambda *_, stack=stack: stack)
        sizes.append([])
        found.append(model_inversion.invert_models(request))
    apart, joined, stacks = sizes
    assert len(stacks) <= 8 < len(joined) < len(apart)
    assert sum(joined) == sum(apart)
    (alone, apart_images), *others = found
    assert {"diverged", "stuck", ""} <= set(alone["status"])
    for rows, images in others:
        assert rows.drop(columns="value").equals(alone.drop(columns="value"))
        np.testing.assert_allclose(rows["value"].astype(float), alone["value"].astype(float), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(images, apart_images, rtol=0, atol=1e-4, equal_nan=True)
