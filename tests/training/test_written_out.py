"""Networks written out for all slots compute each slot as it is alone, and others are left to vmap."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.models import memory
from leakbound_lab.models.layers import written_out
from leakbound_lab.registries import MODELS
from leakbound_lab.training import sgd, stack
from operations import Operations

LARGE = ("alexnet", "vgg16")


def singles(make, slots=3):
    """Networks in float64, where no other formula hides behind rounding."""
    return [make(slot).double() for slot in range(slots)]


def registered(name):
    return lambda slot: models.build(name, 3, 10, torch_generator(0, slot, "init"))


def of_layers(*layers):
    """Sequential networks of equal layers with weights of their own."""

    def make(slot):
        model = nn.Sequential(*layers)
        generator = torch_generator(slot)
        for value in model.parameters():
            nn.init.normal_(value, generator=generator)
        return copy.deepcopy(model)

    return make


def batches(slots, records=2, size=32, colors=3):
    images = torch.randn(
        slots, records, colors, size, size, dtype=torch.float64, generator=torch_generator(0, "images")
    )
    return images, torch.randint(0, 4, (slots, records), generator=torch_generator(0, "labels"))


def close(one, other):
    """Equal up to rounding; without the several copies that `assert_close` makes of millions of values."""
    return one.shape == other.shape and bool((one - other).abs_().max() <= 1e-10)


def assert_equals_one_by_one(networks, params, images, labels, *forwards):
    """Logits and gradients of a stack in each way are those of its networks, each alone."""
    alone = []
    for slot, model in enumerate(networks):
        for name, value in model.named_parameters():
            value.data = params[name].data[slot]  # the largest ones fit into memory only so often
        logits = model(images[slot])
        alone.append((logits, torch.autograd.grad(F.cross_entropy(logits, labels[slot]), list(model.parameters()))))
    for forward in forwards:
        logits = forward(networks[0], params, images)
        found = torch.autograd.grad(stack.loss(logits, labels).sum(), list(params.values()))
        for slot, (expected, gradients) in enumerate(alone):
            assert close(logits[slot], expected)
            for name, gradient, one in zip(params, found, gradients, strict=True):
                assert close(gradient[slot], one), name


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LARGE else name for name in MODELS.builtin]
)
def test_registered_networks_written_out_equal_vmap_and_one_by_one(name):
    networks = singles(registered(name), 2 if name in LARGE else 3)
    images, labels = batches(len(networks))
    params = stack.stacked(networks)
    assert written_out(networks[0], params, images) is not None
    assert_equals_one_by_one(networks, params, images, labels, stack.forward, stack.vmapped)


SETTINGS = {
    "groups": of_layers(
        nn.Conv2d(4, 8, (3, 2), (2, 1), (1, 0), groups=2, bias=False), nn.Flatten(), nn.Linear(96, 4, bias=False)
    ),
    "padding": of_layers(
        nn.Conv2d(4, 6, 3, padding="same", dilation=2), nn.GroupNorm(3, 6), nn.Tanh(), nn.Flatten(), nn.Linear(150, 4)
    ),
    "rows that are no records": of_layers(nn.Linear(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(60, 4)),
    "no parameters": of_layers(
        nn.Linear(5, 3, bias=False), nn.GroupNorm(2, 4, affine=False), nn.ReLU(True), nn.Flatten(), nn.Linear(60, 4)
    ),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_layers_of_all_settings_equal_one_by_one(case):
    networks = singles(SETTINGS[case])
    images, labels = batches(3, 5, 5, 4)
    params = stack.stacked(networks)
    assert written_out(networks[0], params, images) is not None
    assert_equals_one_by_one(networks, params, images, labels, stack.forward)


class Scaled(nn.Module):
    """A parameter that belongs to no layer."""

    def __init__(self):
        super().__init__()
        self.scale, self.layer = nn.Parameter(torch.randn(3, generator=torch_generator(3))), nn.Linear(300, 4)

    def forward(self, images):
        return self.layer((images * self.scale.view(3, 1, 1)).flatten(1))


class Around(nn.Module):
    """A layer whose weight is used without a call of the layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(300, 4)

    def forward(self, images):
        return images.flatten(1) @ self.layer.weight.T + self.layer(images.flatten(1))


class Mixing(nn.Module):
    """Records of a batch are compared with their mean."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(300, 4)

    def forward(self, images):
        return self.layer((images - images.mean(0)).flatten(1))


def tied(slot):
    """Two layers of one weight."""
    first, second = nn.Linear(300, 300), nn.Linear(300, 300)
    second.weight = first.weight
    return nn.Sequential(nn.Flatten(), first, nn.Tanh(), second, nn.Tanh(), nn.Linear(300, 4))


OTHERS = {
    "a layer of another kind": of_layers(nn.Flatten(), nn.Linear(300, 4), nn.LayerNorm(4)),
    "padding by reflection": of_layers(
        nn.Conv2d(3, 2, 3, padding=1, padding_mode="reflect"), nn.Flatten(), nn.Linear(200, 4)
    ),
    "a parameter of no layer": lambda slot: Scaled(),
    "a layer that is not called": lambda slot: Around(),
    "records that are mixed": lambda slot: Mixing(),
    "layers of one weight": tied,
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_networks_are_left_to_vmap(case):
    networks = singles(OTHERS[case], 2)
    images, labels = batches(2, 3, 10)
    params = stack.stacked(networks)
    assert written_out(networks[0], params, images) is None
    assert_equals_one_by_one(networks, params, images, labels, stack.forward)


def test_a_network_mixes_no_slots_that_has_learnt_nothing_yet():
    """With a head of zeros nothing of the mixture reaches the logits."""
    networks = singles(OTHERS["records that are mixed"], 2)
    with torch.no_grad():
        networks[0].layer.weight.zero_()
        networks[1].layer.weight.zero_()
    assert written_out(networks[0], stack.stacked(networks), batches(2, 3, 10)[0]) is None


def test_a_network_written_out_copies_no_parameters_and_keeps_none():
    networks = singles(registered("lenet"))
    params = stack.stacked(networks)
    network = written_out(networks[0], params, batches(3)[0])
    network(params, batches(3)[0])
    assert {value.device.type for layer in network.layers.values() for value in layer.parameters()} == {"meta"}
    assert network is written_out(networks[0], params, batches(3)[0])
    assert not any(network._own.values())


@pytest.mark.parametrize(("case", "most"), [("none", 45), ("parameter_noise", 60), ("gradient_compression", 75)])
def test_operations_of_a_step_do_not_grow_with_the_slots(request_for, under, case, most, monkeypatch):
    """But for one draw of noise by each slot's generator, for many steps at a time on a GPU as here."""
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(2**22, 2**22))
    counts = []
    for rates in ((0.02, 0.05), (0.01, 0.02, 0.03, 0.05, 0.1)):
        request = request_for(learning_rates=rates, training={"max_stack": 5}, **under(case))
        learner = sgd.StackLearner(request, request.slots)
        learner.step()
        learner.step()
        with Operations() as found:
            learner.step()
        counts.append(found.counts)
    assert counts[0]["convolution_backward"] == 2
    assert counts[0] == counts[1]
    assert counts[0].total() <= most
