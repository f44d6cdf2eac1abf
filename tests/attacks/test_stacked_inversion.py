"""Gradients of several networks are inverted in one stack on a GPU, and each network gets what it gets alone."""

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from asking import CalledTwice, attack_of, calibrated
from leakbound.channels import estimate_moments
from leakbound.randomness.seeding import torch_generator
from leakbound_lab.attacks.gradient_inversion import attack as gradient_inversion
from leakbound_lab.attacks.gradient_inversion import closed_form as recursive
from leakbound_lab.attacks.gradient_inversion import published as geiping
from leakbound_lab.attacks.gradient_inversion import several_uses as uses
from leakbound_lab.attacks.gradient_inversion.gradient_matching import GradientMatching, Matching, stack_of
from leakbound_lab.attacks.gradient_inversion.published import PublishedReconstruction, interleaved, reconstruct
from leakbound_lab.config.attacks import GradientInversionConfig, UsesConfig
from leakbound_lab.config.defenses import ChannelDefense, ParameterNoise, Undefended
from leakbound_lab.models import build, memory
from leakbound_lab.models.gradients import record_gradients
from operations import of_further_steps, waits_of_adam

SHAPE = (1, 32, 32)


def networks(name, count, dtype=torch.float64):
    return [build(name, 1, 10, torch_generator(0, slot, name)).to(dtype).eval() for slot in range(count)]


def pictures(*shape, dtype=torch.float64):
    return torch.rand(*shape, *SHAPE, generator=torch_generator(0, "pictures"), dtype=dtype) * 2 - 1


def near(found, expected, rounding):
    """True of tensors that differ by rounding, over the largest value."""
    return bool((found - expected).abs().max() <= rounding * expected.abs().max())


@pytest.mark.parametrize("name", ["lenet_sigmoid", "lenet", "mlp", "resnet10"])
def test_distances_and_slopes_of_a_stack_are_those_of_each_network(name):
    dtype, count, rounding = (torch.float32, 1, 1e-4) if name == "resnet10" else (torch.float64, 2, 1e-10)
    models, (images, others) = networks(name, 2, dtype), pictures(2, 2, count, dtype=dtype)
    labels = torch.tensor([[1, 2], [3, 4]])[:, :count]
    observed = [record_gradients(*one) for one in zip(models, others, labels, strict=True)]
    factors = stack_of(models, SHAPE)
    matching = Matching(factors, {name: interleaved(one[name] for one in observed) for name in observed[0]})
    rows = interleaved(images).requires_grad_()
    distances = matching.distances(rows, interleaved(labels))
    (slopes,) = torch.autograd.grad(distances.sum(), rows)
    for slot, model in enumerate(models):
        own = images[slot].clone().requires_grad_()
        alone = GradientMatching(model, observed[slot], SHAPE).distances(own, labels[slot])
        (slope,) = torch.autograd.grad(alone.sum(), own)
        assert near(distances[slot::2], alone, rounding)
        assert near(slopes[slot::2], slope, rounding)


def test_networks_that_make_no_stack_are_inverted_one_after_another():
    models = []
    for slot in range(2):
        models.append(CalledTwice())
        for parameter in models[-1].parameters():
            nn.init.normal_(parameter, std=0.1, generator=torch_generator(slot, parameter.numel()))
    assert stack_of(models, SHAPE) is None
    labels, starts = torch.tensor([0, 3]), pictures(2, dtype=torch.float32)
    config, weights = GradientInversionConfig(learning_rate=0.05, iterations=2), torch.tensor([0.1, 0.01])
    searches = []
    for model in models:
        observed = record_gradients(model, starts, labels)
        searches.append(PublishedReconstruction(model, observed, labels, torch.arange(2), starts / 5, weights, config))
    for own, (ends, _) in zip(searches, geiping.inverted(searches), strict=True):
        assert torch.equal(ends, geiping.inverted([own])[0][0])


def matched(models, records):
    """Published search in networks side by side."""
    observed = [record_gradients(model, pictures(records), torch.arange(records)) for model in models]
    factors = stack_of(models, SHAPE)
    matching = Matching(factors, {name: interleaved(one[name] for one in observed) for name in observed[0]})
    rows, labels = pictures(records * len(models)), interleaved([torch.arange(records)] * len(models))
    weights = torch.full(labels.shape, 1e-2, dtype=torch.float64)
    return lambda steps: reconstruct(matching, labels, rows, weights, iterations=steps, learning_rate=0.1)


@pytest.mark.parametrize("name", ["lenet_sigmoid", "lenet"])
def test_operations_of_a_step_grow_neither_with_the_networks_nor_with_the_records(name):
    made = (matched(networks(name, slots), records) for slots, records in ((2, 1), (4, 1), (2, 3)))
    first, *others = [of_further_steps(search, 2, 4) for search in made]
    assert others == [first] * 2
    assert first[0].total() < 700
    assert first[1] == waits_of_adam(2)


ATTACKED = {
    "natural": (1, ChannelDefense(), 20.0),
    "noise": (2, ParameterNoise(), 0.01),
    "none": (1, Undefended(), None),
}


@pytest.mark.shapes
@pytest.mark.parametrize("case", ATTACKED)
def test_attack_on_replicas_in_a_stack_finds_what_it_finds_one_by_one(case, few_digits, monkeypatch):
    """Replicas need different numbers of searches, as each extends a grid of its own."""
    size, defense, level = ATTACKED[case]
    moments = estimate_moments([few_digits.aux.images])
    config = GradientInversionConfig(images=2, iterations=3, search_iterations=3, tv_weights=(1e-2,))
    known = {"moments": moments, "channel": calibrated(moments, 20.0) if case == "natural" else None}
    known |= {"defense": defense, "level": level, "batch_size": size}
    request = attack_of(few_digits, config, "mlp", replicas=range(3), **known)
    alone, shown = gradient_inversion.invert_gradients(request)
    waiting, inverted = [], gradient_inversion.inverted
    monkeypatch.setattr(gradient_inversion, "inverted", lambda some: (waiting.append(len(some)), inverted(some))[1])
    # the third replica is alone
    monkeypatch.setattr(memory, "SEARCHES_SIDE_BY_SIDE", memory.DeviceLimit(cpu=2, cuda=1000))
    stacked, seen = gradient_inversion.invert_gradients(request)
    assert set(waiting) == {1, 2}
    pd.testing.assert_frame_equal(stacked.drop(columns="value"), alone.drop(columns="value"))
    np.testing.assert_allclose(stacked.value.astype(float), alone.value.astype(float), rtol=1e-2, atol=1e-6)
    assert stacked[stacked.replica == 2].equals(alone[alone.replica == 2])
    assert shown.keys() == seen.keys()
    assert all(np.array_equal(shown[name], seen[name]) for name in ("truth", "released", "prior"))


def test_uses_that_are_solved_at_once_tell_what_they_tell_one_by_one(few_digits, monkeypatch):
    moments = estimate_moments([few_digits.aux.images])
    known = {"moments": moments, "channel": calibrated(moments, 20.0), "level": 20.0, "defense": ChannelDefense()}
    config = UsesConfig(uses=(1, 2), images=1)
    request = attack_of(few_digits, config, "lenet_sigmoid", replicas=range(2), **known)
    monkeypatch.setattr(recursive, "_ITERATIONS", 30)
    alone = uses.invert_several_uses(request)
    monkeypatch.setattr(memory, "SEARCHES_SIDE_BY_SIDE", memory.DeviceLimit(cpu=100, cuda=1000))
    stacked = uses.invert_several_uses(request)
    pd.testing.assert_frame_equal(stacked[0], alone[0], rtol=1e-4)
    np.testing.assert_allclose(stacked[1]["errors"], alone[1]["errors"], rtol=1e-3)
