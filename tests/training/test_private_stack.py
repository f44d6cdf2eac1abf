"""DP-SGD and DP-PSAC of several slots as one stack: what each slot gets alone, from Poisson batches filled up."""

import copy
from collections import Counter

import pytest
import torch
from test_written_out import Operations
from torch import nn

from leakbound import models
from leakbound.config.defenses import DPPSAC, DPSGD
from leakbound.randomness.seeding import torch_generator
from leakbound.training import loop, memory, stack, train
from leakbound.training.client_steps import client_step
from leakbound.training.dp import private_stack
from leakbound.training.dp.private_stack import PrivateStackLearner, padded
from leakbound.training.dp.weighted_sums import stacked_sums, weighted_sums

CLIPPED = {"dpsgd": DPSGD, "dppsac": DPPSAC}


class Twice(nn.Module):
    """A layer that is called twice, which no factors of a record's gradient are known for."""

    def __init__(self):
        super().__init__()
        self.layer, self.head = nn.Linear(96, 96), nn.Linear(96, 10)

    def forward(self, images):
        return self.head(torch.tanh(self.layer(torch.tanh(self.layer(images[..., 0].flatten(1))))))


class Normed(nn.Module):
    """A layer of another kind."""

    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(3072, 10), nn.LayerNorm(10)

    def forward(self, images):
        return self.norm(self.layer(images.flatten(1)))


class Wide(nn.Sequential):
    """Kernels too large to keep the gradients of single records, at many places and at few."""

    def __init__(self):
        layers = nn.Conv2d(3, 64, 3, stride=4), nn.GroupNorm(4, 64), nn.Tanh(), nn.Conv2d(64, 40, 3, 2, 1), nn.Tanh()
        super().__init__(*layers, nn.Conv2d(40, 64, 3, 2), nn.GroupNorm(2, 64), nn.Flatten(), nn.Linear(64, 10))


@pytest.mark.parametrize(
    "name", ["lenet", "lenet_sigmoid", "mlp", Twice, Normed, Wide, pytest.param("resnet10", marks=pytest.mark.slow)]
)
def test_stacked_sums_equal_those_of_each_slot(name):
    """In float64; two of the four records of the first slot only fill up."""
    builds = {
        True: lambda: name().double(),
        False: lambda: models.build(name, 3, 10, torch_generator(0, "init")).double(),
    }
    networks = [builds[isinstance(name, type)]() for _ in range(3)]
    for slot, model in enumerate(networks):
        for value in model.parameters():
            value.data += 0.02 * torch.randn(value.shape, dtype=value.dtype, generator=torch_generator(slot))
    images = torch.randn(3, 4, 3, 32, 32, dtype=torch.float64, generator=torch_generator(0, "images"))
    labels = torch.randint(0, 10, (3, 4), generator=torch_generator(0, "labels"))
    drawn = torch.tensor([[True, False, True, False], [True] * 4, [True] * 4])
    weights = client_step(DPSGD(max_grad_norm=0.3), 0.0).record_weights

    def weigh(norms):
        return weights(norms.flatten(), 1e-6).view(norms.shape) * drawn

    params = {name: value.detach() for name, value in stack.stacked(networks).items()}
    found = stacked_sums(networks[0], params, images, labels, weigh)
    for slot, keep in enumerate(drawn):
        with torch.no_grad():
            for name, value in networks[1].named_parameters():
                value.copy_(params[name][slot])
        own = weighted_sums(networks[1], images[slot][keep], labels[slot][keep], lambda norms: weights(norms, 1e-6))
        assert list(own) == list(found)
        for key, value in own.items():
            torch.testing.assert_close(found[key][slot], value, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mechanism", CLIPPED)
def test_stack_of_private_training_equals_one_by_one(request_for, mechanism):
    """With noise: on a CPU a stack draws the numbers that Opacus draws for each slot."""
    slots = {"replicas": 2, "learning_rates": (0.02, 0.05), "training": {"evaluations": 1}}
    request = request_for(defense=CLIPPED[mechanism](max_grad_norm=0.5), level=0.5, rounds=3, **slots)
    alone = train(request)
    for size in (1, 4):
        together = loop.train_slots(request, PrivateStackLearner, size)
        for name, value in alone.weights.items():
            torch.testing.assert_close(together.weights[name], value, rtol=0, atol=1e-6)
        assert together.events == alone.events
        epsilon = [result.curves.query("metric == 'epsilon'") for result in (alone, together)]
        assert epsilon[0].equals(epsilon[1])


def test_stack_does_not_depend_on_how_many_records_are_held_at_once(request_for, monkeypatch):
    request = request_for(defense=DPSGD(max_grad_norm=0.3), level=0.5, rounds=3, replicas=2)
    whole = loop.train_slots(request, PrivateStackLearner, 2)
    monkeypatch.setattr(private_stack, "physical_batch", lambda *_: 14)
    parted = loop.train_slots(request, PrivateStackLearner, 2)
    for name, value in whole.weights.items():
        torch.testing.assert_close(parted.weights[name], value, rtol=1e-4, atol=1e-6)
    assert parted.events == whole.events


def test_slots_that_draw_nobody_get_noise_alone(request_for):
    request = request_for(defense=DPSGD(), level=0.7, rounds=12, batch_size=1, replicas=2)
    sizes = [
        [len(batches.draw()) for _ in range(12)] for batches in PrivateStackLearner(request, request.slots)._batches
    ]
    assert any(not one and other for one, other in zip(*sizes, strict=True))
    assert any(not one and not other for one, other in zip(*sizes, strict=True))
    alone, together = train(request), loop.train_slots(request, PrivateStackLearner, 2)
    for name, value in alone.weights.items():
        torch.testing.assert_close(together.weights[name], value, rtol=1e-4, atol=1e-5)


def test_batches_are_filled_up_to_multiples_of_sixteen():
    rows = padded([torch.arange(3), torch.arange(20), torch.arange(0)])
    assert rows.shape == (3, 32)
    assert rows[0].tolist() == [0, 1, 2, *[-1] * 29]
    assert int((rows >= 0).sum()) == 23
    assert padded([torch.arange(0)]).shape == (1, 0)


def test_private_stack_goes_on_in_the_middle_of_noise_that_was_drawn_ahead(request_for, monkeypatch):
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(3 * 61_706, 3 * 61_706))
    request = request_for(defense=DPSGD(), level=0.7, replicas=2)
    learner = PrivateStackLearner(request, request.slots)
    for steps in range(5):
        other = PrivateStackLearner(request, request.slots)
        other.restore(copy.deepcopy(learner.state()))
        learner.step()
        other.step()
        for name, value in learner.params.items():
            assert torch.equal(other.params[name], value), f"after {steps} steps"
        assert other.metrics() == learner.metrics()


def test_operations_of_a_private_step_do_not_grow_with_the_slots(request_for, monkeypatch):
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(2**22, 2**22))
    monkeypatch.setattr(memory, "UNFOLDED_VALUES", memory.DeviceLimit(2**27, 2**27))  # as on a GPU
    counts = []
    for rates in ((0.02, 0.05), (0.01, 0.02, 0.03, 0.05, 0.1)):
        request = request_for(defense=DPSGD(), level=0.7, learning_rates=rates)
        learner = PrivateStackLearner(request, request.slots)
        learner.step()
        with Operations() as found:
            learner.step()
        counts.append(found.counts - Counter(rand=9, lt=9))  # each slot's Poisson sample is drawn on the CPU
    assert counts[0] == counts[1]
    assert counts[0].total() <= 150
