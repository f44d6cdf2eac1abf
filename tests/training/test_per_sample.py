import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from opacus import GradSampleModule
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import nn

from asking import CalledTwice
from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.config.defenses import DPPSAC, DPSGD, ChannelDPSGD
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.models.layers import factorable
from leakbound_lab.training import opacus_learner, per_sample, train
from leakbound_lab.training.batches import PoissonBatches
from leakbound_lab.training.client_steps import client_step
from leakbound_lab.training.request import initial_network
from leakbound_lab.training.weighted_sums import weighted_sums

CLIPPED = {"dpsgd": DPSGD, "dppsac": DPPSAC}


def weight(mechanism, norm, bound):
    """The published weight of a record's gradient, Opacus' small constant included."""
    return min(1.0, bound / (norm + 1e-6)) if mechanism == "dpsgd" else bound / (norm + 0.1 / (norm + 0.1))


def microbatches(model, images, labels, mechanism, bound):
    """Sums of weighted gradients, for each parameter, by a batch for each record."""
    total = [torch.zeros_like(value) for value in model.parameters()]
    for image, label in zip(images, labels, strict=True):
        loss = F.cross_entropy(model(image[None]), label[None])
        grads = torch.autograd.grad(loss, list(model.parameters()))
        norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
        for value, grad in zip(total, grads, strict=True):
            value += weight(mechanism, norm, bound) * grad
    return total


@pytest.mark.parametrize("mechanism", ["dpsgd", "dppsac"])
@pytest.mark.parametrize("bound", [0.3, 100.0])
def test_clipping_equals_microbatches_of_one_record(request_for, digits, mechanism, bound):
    defense = CLIPPED[mechanism](max_grad_norm=bound)
    request = request_for(defense=defense, level=0.0, rounds=1, learning_rates=(0.1,), batch_size=20)
    result = train(request)
    model = models.build("lenet", 1, 10, torch_generator(7, "digits", 0, "init"))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    draws = torch.rand(400, generator=torch_generator(7, "digits", 0, "batches"), dtype=torch.float64)
    rows = np.flatnonzero(draws.numpy() < 20 / 400)
    members = digits.members(0)
    images, labels = (torch.from_numpy(array[rows]) for array in (members.images, members.labels))
    total = microbatches(model, images, labels, mechanism, bound)
    for name, start, value in zip(result.weights, before, total, strict=True):
        torch.testing.assert_close(result.weights[name][0], start - 0.1 * value / 20, rtol=1e-4, atol=1e-6)
    assert result.events[0].uses == 1


def opacus_sums(model, images, labels, bound):
    """Sums of clipped gradients by Opacus' hooks and its optimizer."""
    hooked = GradSampleModule(model, loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=bound, expected_batch_size=1
    )
    F.cross_entropy(hooked(images), labels, reduction="sum").backward()
    optimizer.clip_and_accumulate()
    sums = {name: value.summed_grad for name, value in model.named_parameters()}
    hooked.remove_hooks()
    return sums


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize(
    ("name", "bound"),
    [
        *(("mlp", 0.3), ("mlp_wide", 0.3), ("lenet", 0.3), ("lenet", 3.0), ("lenet_sigmoid", 1e3)),
        *(("cnn", 0.3), ("alexnet", 0.3), ("vgg16", 0.3), ("resnet10", 0.3)),
    ],
)
def test_clipped_sums_equal_those_of_opacus(digits, name, bound):
    """In float64, where a different formula cannot hide behind rounding."""
    model = models.build(name, 1, 10, torch_generator(0, "init")).double()
    images, labels = torch.from_numpy(digits.pool.images[:2]).double(), torch.from_numpy(digits.pool.labels[:2])
    assert factorable(model)
    weights = client_step(DPSGD(max_grad_norm=bound), 0.0).record_weights
    ours = weighted_sums(model, images, labels, lambda norms: weights(norms, 1e-6))
    expected = opacus_sums(model, images, labels, bound)
    assert list(ours) == [key for key, _ in model.named_parameters()]
    for key, value in expected.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-7, atol=1e-9 * value.abs().max().item())


def layers(*modules):
    return nn.Sequential(*modules)


NETWORKS = {
    "strides and padding": layers(
        nn.Conv2d(1, 5, (3, 2), stride=(2, 1), padding=(1, 0)), nn.Flatten(), nn.Linear(30, 4)
    ),
    "no biases": layers(nn.Conv2d(1, 6, 3, bias=False), nn.Flatten(), nn.Linear(24, 4, bias=False)),
    "large weights, many places": layers(
        nn.Conv2d(1, 64, 3, padding=1), nn.Conv2d(64, 40, 3, padding=1), nn.Flatten(), nn.Linear(640, 4)
    ),
    "large weights, few places": layers(
        nn.Conv2d(1, 64, 3), nn.Tanh(), nn.Conv2d(64, 40, 2), nn.Flatten(), nn.Linear(40, 4)
    ),
    "a layer of another kind": layers(nn.Flatten(), nn.Linear(16, 8), nn.LayerNorm(8)),
    "groups": layers(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 2, groups=2), nn.Flatten()),
    "dilation": layers(nn.Conv2d(1, 5, 2, dilation=2, padding=1), nn.Flatten(), nn.Linear(80, 4)),
    "dilation, large weights": layers(
        nn.Conv2d(1, 64, 3, padding=1), nn.Conv2d(64, 40, 3, padding=2, dilation=2), nn.Flatten(), nn.Linear(640, 4)
    ),
    "changed in place": layers(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(True), nn.Linear(8, 4)),
    "rows that are no records": layers(nn.Linear(4, 4), nn.Flatten(), nn.Linear(16, 4)),
    "called twice": CalledTwice(side=4),
}


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("mechanism", ["dpsgd", "dppsac"])
def test_weighted_sums_equal_microbatches_whatever_the_layers(network, mechanism):
    model = NETWORKS[network]
    images = torch.randn(6, 1, 4, 4, generator=torch_generator(1))
    labels = torch.arange(6) % 4
    total = microbatches(model, images, labels, mechanism, 0.7)
    weights = client_step(CLIPPED[mechanism](max_grad_norm=0.7), 0.0).record_weights
    ours = weighted_sums(model, images, labels, lambda norms: weights(norms, 1e-6))
    torch.testing.assert_close(list(ours.values()), total, rtol=1e-4, atol=1e-5)
    assert all(value.requires_grad for value in model.parameters())


@pytest.mark.parametrize("defense", [DPSGD(max_grad_norm=0.3), DPPSAC()])
def test_training_does_not_depend_on_how_many_records_are_held_at_once(request_for, monkeypatch, defense):
    request = request_for(defense=defense, level=0.5, rounds=2, replicas=2, training={"evaluations": 1})
    whole = train(request)
    for records in (1, 7):
        for place in (per_sample, opacus_learner):
            monkeypatch.setattr(place, "physical_batch", lambda *_, held=records: held)
        parted = train(request)
        torch.testing.assert_close(parted.weights, whole.weights, rtol=1e-4, atol=1e-6)
        assert parted.events == whole.events
        epsilon = [result.curves.query("metric == 'epsilon'")["value"].tolist() for result in (whole, parted)]
        assert epsilon[0] == epsilon[1]  # noise once for all parts of a batch, and one step for the accountant


def test_gradients_of_single_records_fill_at_most_a_gibibyte_on_a_cpu_but_for_one_record(monkeypatch):
    model = layers(nn.Flatten(), nn.Linear(3072, 2000), nn.LayerNorm(2000))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    records = per_sample.physical_batch(model, (3, 32, 32), "cpu")
    assert 0.9 * 2**30 < 4 * parameters * records < 2**30
    monkeypatch.setattr("leakbound_lab.models.memory.GRADIENT_BYTES", 1)
    assert per_sample.physical_batch(model, (3, 32, 32), "cpu") == 1


def psac(norms, r=0.1):
    """Weights of DP-PSAC."""
    return client_step(DPPSAC(r=r), 0.0).record_weights(norms)


@pytest.mark.parametrize("r", [0.001, 0.1, 10.0])
def test_psac_sensitivity_is_at_most_the_bound(r):
    for norm in np.logspace(-10, 10, 81):
        contribution = float(psac(torch.tensor([norm], dtype=torch.float32), r)) * norm
        assert contribution <= 1 + 1e-6
        assert contribution == pytest.approx(norm / (norm + r / (norm + r)), rel=1e-4)


@pytest.mark.parametrize("mechanism", ["dpsgd", "dppsac"])
def test_noise_has_the_standard_deviation_of_multiplier_times_bound_over_batch(request_for, mechanism):
    defense = CLIPPED[mechanism](max_grad_norm=0.5)
    noisy, silent = (
        train(request_for(defense=defense, level=level, rounds=1, learning_rates=(1.0,), batch_size=20, replicas=2))
        for level in (3.0, 0.0)
    )
    difference = torch.cat([(noisy.weights[name] - silent.weights[name]).flatten(1) for name in noisy.weights], dim=1)
    expected, count = 3.0 * 0.5 / 20, difference.shape[1]
    # 61,706 draws: the standard deviation to 5 of its standard errors, mean and correlation of replicas likewise.
    for replica in difference:
        assert replica.std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * count))
        assert abs(replica.mean().item()) < 5 * expected / math.sqrt(count)
    assert abs(torch.corrcoef(difference)[0, 1].item()) < 5 / math.sqrt(count)


def test_gradients_behind_a_channel_are_clipped_after_its_noise_and_get_that_of_dp_on_their_sum(request_for, channel):
    noise = channel("natural", 8.0)
    behind = {"defense": ChannelDPSGD(capacity=8.0, max_grad_norm=0.5), "channel": noise}
    one = {"rounds": 1, "learning_rates": (1.0,), "batch_size": 20, "training": {"momentum": 0.0}}
    request = request_for(**behind, **one, level=1e-9)
    # By hand: noise of the channel's variance on images, then their gradients, clipped and summed.
    network, members = initial_network(request, 0), request.dataset.members(0)
    drawn = PoissonBatches(400, 0.05, request.noise(0, "batches")).draw()
    noise_of_images = request.noise(0, "channel").normal((len(drawn), 1024)) * math.sqrt(noise.variances[0])
    images = torch.from_numpy(members.images)[drawn] + noise_of_images.view(-1, 1, 32, 32)
    parts = record_gradients(network, images, torch.from_numpy(members.labels)[drawn])
    flat = torch.cat([part.flatten(1) for part in parts.values()], dim=1)
    total = (flat * (0.5 / flat.norm(dim=1, keepdim=True)).clamp(max=1.0)).sum(0)
    results = train(request), train(request_for(**behind, **one, level=3.0))
    quiet, loud = (torch.cat([result.weights[name].flatten() for name in parts]) for result in results)
    start = torch.cat([dict(network.named_parameters())[name].detach().flatten() for name in parts])
    torch.testing.assert_close(quiet, start - total / 20, rtol=0, atol=1e-5)
    added, (event,) = loud - quiet, results[1].events
    # 61,706 draws: to 5 standard errors.
    assert added.std().item() == pytest.approx(3.0 * 0.5 / 20, rel=5 / math.sqrt(2 * len(added)))
    assert (event.mechanism, event.noise_multiplier, event.max_grad_norm) == ("channel_dpsgd", 3.0, 0.5)
    assert (event.shape, event.capacity, event.noise, event.sampling) == ("natural", 8.0, "fresh", "poisson")


@pytest.mark.parametrize(("accountant", "reference"), [("rdp", RDPAccountant), ("prv", PRVAccountant)])
def test_epsilon_equals_the_accountant_called_on_its_own(request_for, accountant, reference):
    request = request_for(defense=DPSGD(accountant=accountant), level=1.3, rounds=6, batch_size=40)
    result = train(request)
    curve = result.curves.query("metric == 'epsilon'").set_index("step")["value"]
    assert curve.index.tolist() == [3, 6]
    for steps, epsilon in curve.items():
        alone = reference()
        alone.history = [(1.3, 0.1, steps)]
        assert epsilon == pytest.approx(alone.get_epsilon(1e-5), rel=1e-12)


@pytest.mark.parametrize("mechanism", ["dpsgd", "dppsac"])
@pytest.mark.parametrize("records", [1, 1000])
def test_empty_batches_add_noise_alone(request_for, monkeypatch, mechanism, records):
    for place in (per_sample, opacus_learner):
        monkeypatch.setattr(place, "physical_batch", lambda *_: records)
    draws = torch_generator(7, "digits", 0, "batches")
    sizes = [int((torch.rand(400, generator=draws, dtype=torch.float64) < 1 / 400).sum()) for _ in range(12)]
    empty = sizes.index(0)

    def weights(level, rounds):
        request = request_for(
            defense=CLIPPED[mechanism](), level=level, rounds=rounds, batch_size=1, training={"momentum": 0.0}
        )
        result = train(request)
        assert result.diverged == [False]
        assert (result.events[0].steps, result.events[0].uses) == (rounds, rounds)  # who was drawn is secret
        return torch.cat([value.flatten() for value in result.weights.values()])

    assert torch.equal(weights(0.0, empty), weights(0.0, empty + 1))
    change = weights(2.0, empty + 1) - weights(2.0, empty)
    assert change.std().item() == pytest.approx(0.05 * 2.0, rel=5 / math.sqrt(2 * len(change)))
