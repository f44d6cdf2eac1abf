"""DP-SGD and DP-PSAC of several slots as one stack: what each slot gets alone, from Poisson batches filled up."""

import copy
from collections import Counter

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from asking import CalledTwice
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.config.defenses import DPPSAC, DPSGD, ChannelDPSGD
from leakbound_lab.models import memory
from leakbound_lab.training import loop, per_sample, stack, train
from leakbound_lab.training.batches import PaddedBatches, PoissonBatches
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.per_sample import PrivateStackLearner
from leakbound_lab.training.stack import Replayed
from leakbound_lab.training.weighted_sums import stacked_sums, weighted_sums
from operations import Operations

CLIPPED = {"dpsgd": DPSGD, "dppsac": DPPSAC}


def called_twice():
    return CalledTwice(colors=3)


def normed():
    """A layer of another kind, which no factors of a record's gradient are known for."""
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 10), nn.LayerNorm(10))


class Wide(nn.Sequential):
    """Kernels too large to keep the gradients of single records, at many places and at few."""

    def __init__(self):
        layers = nn.Conv2d(3, 64, 3, stride=4), nn.GroupNorm(4, 64), nn.Tanh(), nn.Conv2d(64, 40, 3, 2, 1), nn.Tanh()
        super().__init__(*layers, nn.Conv2d(40, 64, 3, 2), nn.GroupNorm(2, 64), nn.Flatten(), nn.Linear(64, 10))


def built(name):
    return name() if callable(name) else models.build(name, 3, 10, torch_generator(0, "init"))


STACKED = ["lenet", "lenet_sigmoid", "mlp", called_twice, normed, Wide]


@pytest.mark.parametrize("name", [*STACKED, pytest.param("resnet10", marks=pytest.mark.slow)])
def test_stacked_sums_equal_those_of_each_slot(name):
    """In float64; two of the four records of the first slot only fill up."""
    networks = [built(name).double() for _ in range(3)]
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


@pytest.mark.no_shapes
@pytest.mark.parametrize("mechanism", CLIPPED)
def test_stack_of_private_training_equals_one_by_one(request_for, mechanism):
    """With noise: on a CPU a stack draws the numbers that Opacus draws for each slot."""
    slots = {"replicas": 2, "learning_rates": (0.02, 0.05), "training": {"evaluations": 1}}
    request = request_for(defense=CLIPPED[mechanism](max_grad_norm=0.5), level=0.5, rounds=3, **slots)
    alone = train(request)
    for size in (1, 4):
        together = loop.train_slots(request, PrivateStackLearner, size)
        torch.testing.assert_close(together.weights, alone.weights, rtol=0, atol=1e-6)
        assert together.events == alone.events
        epsilon = [result.curves.query("metric == 'epsilon'") for result in (alone, together)]
        assert epsilon[0].equals(epsilon[1])


@pytest.mark.parametrize("noise", ["fresh", "frozen"])
@pytest.mark.parametrize("shape", ["natural", "white"])
def test_stack_behind_a_channel_equals_one_by_one(request_for, channel, monkeypatch, shape, noise):
    """The images of a slot get the same noise next to others, which fill its batches up, and in pieces."""
    defense = ChannelDPSGD(shape=shape, capacity=8.0, noise=noise, max_grad_norm=0.5)
    slots = {"replicas": 3, "channel": channel(shape, 8.0), "training": {"evaluations": 1}}
    request = request_for(defense=defense, level=0.5, rounds=3, **slots)
    alone, together = train(request), loop.train_slots(request, PrivateStackLearner, 3)
    monkeypatch.setattr(per_sample, "physical_batch", lambda *_: 21)
    for other in (together, train(request), loop.train_slots(request, PrivateStackLearner, 2)):
        assert other.events == alone.events
        torch.testing.assert_close(other.weights, alone.weights, rtol=0, atol=2e-5)


def test_slots_that_draw_nobody_get_noise_alone(request_for):
    request = request_for(defense=DPSGD(), level=0.7, rounds=12, batch_size=1, replicas=2)
    batches = PrivateStackLearner(request, request.slots)._batches
    drawn = {tuple((batches.draw() >= 0).any(1).tolist()) for _ in range(12)}
    assert {(False, True), (False, False)} <= drawn
    alone, together = train(request), loop.train_slots(request, PrivateStackLearner, 2)
    torch.testing.assert_close(together.weights, alone.weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lenet", Wide])
def test_bound_on_the_norm_bounds_the_sum_of_rounded_passes(name):
    """One record in each slot, clipped to S: what is summed is of length S, whatever its precision."""
    made = [built(name) for _ in range(2)]
    images = torch.randn(2, 1, 3, 32, 32, generator=torch_generator(0, "images"))
    params = {key: value.detach() for key, value in stack.stacked(made).items()}

    def clipped(norms):
        return 0.01 / norms

    sums = [
        stacked_sums(made[0], params, images, torch.tensor([[3], [5]]), clipped, precision)
        for precision in ("float32", "bfloat16")
    ]
    for found in sums:
        norms = sum(value.flatten(1).square().sum(1) for value in found.values()).sqrt()
        torch.testing.assert_close(norms, torch.full((2,), 0.01), rtol=1e-5, atol=0)
    apart = sum((one - sums[1][key]).square().sum() for key, one in sums[0].items()).sqrt()
    assert 1e-6 < float(apart) < 1e-3


def poisson(steps, monkeypatch):
    monkeypatch.setattr(memory, "POISSON_STEPS", memory.DeviceLimit(steps, steps))
    slots = [PoissonBatches(300, 0.1, torch_generator(3, slot)) for slot in range(2)]
    return PaddedBatches(slots, "cpu")


def test_batches_drawn_ahead_are_those_of_every_step_and_are_drawn_again(monkeypatch):
    every = poisson(1, monkeypatch)
    drawn = [every.draw() for _ in range(12)]
    assert len({rows.shape for rows in drawn}) > 1
    ahead = poisson(5, monkeypatch)
    for step, rows in enumerate(drawn):
        resumed = poisson(5, monkeypatch)
        resumed.restore(copy.deepcopy(ahead.state()))
        assert torch.equal(resumed.draw(), rows), step
        assert torch.equal(ahead.draw(), rows), step


def traced(learner):
    """Capture of a step as the operations on tensors that it is: a replay runs no Python of the learner."""

    def capture(step, tensors, earlier=None):
        moments = [state["momentum_buffer"] for state in learner._weights._optimizer.state.values()]
        changed = [value.detach() for value in (*learner._weights.leaves, *moments)]
        before = [value.clone() for value in changed]
        replay = make_fx(lambda *given: step(*given))(*[one.clone() for one in tensors])
        torch._foreach_copy_(changed, before)  # a capture computes nothing
        return replay

    return capture


def assert_alike(plain: PrivateStackLearner, captured: PrivateStackLearner) -> None:
    """Eleven steps of both, in which two widths are captured, lead to the same weights."""
    for _ in range(11):
        plain.step()
        captured.step()
    assert len(captured._pass._replays) == 2
    torch.testing.assert_close(captured.params, plain.params, rtol=0, atol=0)


@pytest.mark.no_shapes
@pytest.mark.parametrize("mechanism", CLIPPED)
@pytest.mark.parametrize("held", [10**6, 30])
def test_captured_private_training_is_the_training(request_for, monkeypatch, mechanism, held):
    """To the byte, for each width of a step by itself, also where a step goes piece by piece."""
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(7 * 61_706, 7 * 61_706))
    monkeypatch.setattr(per_sample, "physical_batch", lambda *_: held)
    defense = CLIPPED[mechanism](max_grad_norm=0.5)
    request = request_for(defense=defense, level=0.5, learning_rates=(0.02, 0.05), replicas=2)
    plain, captured = (PrivateStackLearner(request, request.slots) for _ in range(2))
    captured._pass = Replayed(captured._differentiate, traced(captured))
    assert_alike(plain, captured)


def test_noise_that_is_not_drawn_ahead_is_added_to_captured_sums(request_for):
    """As secure noise is, and noise of large networks. Sums of a step are read before others replace them."""
    slots = {"replicas": 2, "learning_rates": (0.02, 0.05)}
    request = request_for(defense=DPSGD(max_grad_norm=0.5), level=0.5, **slots)
    plain, captured = (PrivateStackLearner(request, request.slots) for _ in range(2))

    def capture(step, tensors, earlier=None):
        step(*tensors)
        held = captured._sums[tensors[0].shape[1]]

        def replay(drawn):
            step(drawn)
            torch._foreach_copy_(held, captured._sums[drawn.shape[1]])
            captured._sums[drawn.shape[1]] = held

        return replay

    captured._pass = Replayed(captured._differentiate, capture)
    assert_alike(plain, captured)


def test_secure_noise_is_drawn_outside_of_a_captured_step(request_for, monkeypatch):
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(7 * 61_706, 7 * 61_706))
    request = request_for(defense=DPSGD(max_grad_norm=0.5), level=0.5, replicas=2, privacy_noise="secure")
    learner = PrivateStackLearner(request, request.slots)
    seen = []
    learner._pass = Replayed(learner._differentiate, lambda step, tensors, *_: seen.append(tensors) or step)
    for _ in range(20):  # secret batches are of few widths, one of which comes four times
        learner.step()
    assert {len(tensors) for tensors in seen} == {1}
    start = PrivateStackLearner(request, request.slots).params
    assert all(not torch.equal(learner.params[name], value) for name, value in start.items())


def test_a_resumed_private_training_replays_nothing_of_before(request_for, monkeypatch):
    monkeypatch.setattr(memory, "PARAMETER_NOISE_VALUES", memory.DeviceLimit(7 * 61_706, 7 * 61_706))
    monkeypatch.setattr(memory, "POISSON_STEPS", memory.DeviceLimit(4, 4))
    request = request_for(defense=DPSGD(max_grad_norm=0.5), level=0.5, replicas=2)
    plain, resumed = (PrivateStackLearner(request, request.slots) for _ in range(2))
    resumed._pass = Replayed(resumed._differentiate, traced(resumed))
    for step in range(12):
        if step == 6:
            resumed.restore(copy.deepcopy(resumed.state()))
        plain.step()
        resumed.step()
    torch.testing.assert_close(resumed.params, plain.params, rtol=0, atol=0)


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
