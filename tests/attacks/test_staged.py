"""The staged search: exact features and slopes, kinks that harden, and fewer errors than with kinks throughout."""

import dataclasses
import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from asking import attack_of, calibrated
from leakbound.channels import estimate_moments
from leakbound_lab.attacks.gradient_inversion import attack as gradient_inversion
from leakbound_lab.attacks.gradient_inversion import staged
from leakbound_lab.attacks.gradient_inversion.map_estimate import (
    Law,
    MapProblem,
    Method,
    Recovery,
    methods,
    recover_images,
)
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.config.defenses import DPSGD, ChannelDefense, Undefended
from leakbound_lab.models import build
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.client_steps import client_step

SHAPE = (2, 12, 12)


class Tiny(nn.Module):
    """Two convolutions, each with a ReLU and one kind of pooling, and two linear layers; its sides leave a rest."""

    def __init__(self, pool="max", stride=1, bias=True):
        super().__init__()
        self.pool = {"max": F.max_pool2d, "mean": F.avg_pool2d, "none": lambda x, _: x}[pool]
        self.conv1 = nn.Conv2d(2, 6, 3, stride=stride, padding=1, bias=bias)
        self.conv2 = nn.Conv2d(6, 8, 4, bias=bias)
        side = {"max": 1, "mean": 1, "none": 9}[pool] if stride == 1 else 3
        self.fc = nn.Linear(8 * side**2, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, images):
        x = self.pool(F.relu(self.conv1(images)), 2)
        x = self.pool(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.fc(x.flatten(1))))


def tiny(seed=0, **settings) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Tiny(**settings).double().eval()


def pictures(count, seed=1):
    """Smooth images, so that a law has something to say about them."""
    noise = torch.randn(count, *SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return F.avg_pool2d(F.pad(noise, (2, 2, 2, 2), mode="circular"), 5, stride=1) * 3


KINDS = [{"pool": "max"}, {"pool": "mean"}, {"pool": "none", "stride": 2}, {"pool": "max", "bias": False}]


@pytest.mark.parametrize("kind", KINDS)
def test_features_and_slopes_of_the_closed_form_are_those_of_autograd(kind):
    model, images, labels = tiny(**kind), pictures(3), torch.tensor([0, 3, 1])
    held = []
    model.fc.register_forward_hook(lambda layer, inputs, output: held.append(inputs[0]))
    loss = F.cross_entropy(model(images), labels, reduction="sum")
    (slopes,) = torch.autograd.grad(loss, held[0])
    found = staged.features_of(model, record_gradients(model, images, labels), SHAPE)
    torch.testing.assert_close(found.values, held[0], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.slopes, slopes, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_with_softened_kinks_tend_to_those_of_the_network(kind):
    model, images, labels = tiny(**kind), pictures(3), torch.tensor([0, 3, 1])
    expected = record_gradients(model, images, labels)
    known = staged.features_of(model, expected, SHAPE)
    stages, weights = staged.stages_of(model, SHAPE), {name: one.detach() for name, one in model.named_parameters()}

    def missed(temperature: float) -> float:
        """Largest relative error of features and of a convolution's gradients."""
        features, gradients = staged.encoded(stages, weights, images, known.slopes, temperature)
        pairs = [(features, known.values)]
        pairs += [(gradients[name].flatten(1), expected[name].flatten(1)) for name in gradients]
        assert gradients.keys() == {name for name in expected if name.startswith("conv")}
        return max(float((one - other).norm() / other.norm()) for one, other in pairs)

    errors = [missed(temperature) for temperature in (0.1, 0.01, 0.001, 1e-5)]
    assert missed(0.0) < 1e-12
    assert errors[0] > 1e-3
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-5


def problem_of(model, images, labels):
    client = client_step(Undefended(), None)
    sent = client.upload(model, images[:, None], labels[:, None], torch.Generator())
    return MapProblem(model, client, sent.gradients, labels[:, None], SHAPE)


@pytest.fixture(scope="module")
def law():
    return Law.of(pictures(2000, seed=2).numpy(), None)


def test_staged_search_errs_less_than_with_kinks_throughout_and_than_the_search_of_the_whole_gradient(law, monkeypatch):
    model, images, labels = tiny().float(), pictures(4).float(), torch.arange(4)
    known = problem_of(model, images, labels)

    def error(method: Method) -> float:
        """Of images found by one method from the same starts."""
        found = recover_images(known, method, law, 150)
        return float(((torch.from_numpy(found.images[:, 0]) - images) ** 2).mean())

    soft = error(Method("staged"))
    monkeypatch.setattr(staged, "_WARMEST", 0.0)
    hard = error(Method("staged"))
    monkeypatch.undo()
    assert soft < 0.8 * hard
    assert soft < 0.8 * error(Method("adam", 1e4))


def test_start_that_diverges_is_not_kept(law, monkeypatch):
    known = problem_of(tiny().float(), pictures(1).float(), torch.tensor([2]))
    monkeypatch.setattr(staged, "_SPREAD", torch.nan)
    assert np.isfinite(recover_images(known, Method("staged"), law, 3).images).all()


def unbiased() -> nn.Module:
    model = tiny()
    model.head.bias = None
    return model


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: build("resnet10", 3, 10, torch.Generator()), "norm is a GroupNorm"),
        (lambda: build("lenet_sigmoid", 1, 10, torch.Generator()), "between conv1 and conv2 is something else"),
        (lambda: build("mlp", 1, 10, torch.Generator()), "fc1 has no convolution below"),
        (unbiased, "fc has .* an input that no equations lead to"),
    ],
)
def test_networks_that_have_no_stages_go_without_and_the_log_says_why(model, reason, caplog):
    network = model().eval()
    shape = getattr(network, "image_shape", SHAPE)
    with pytest.raises(ValueError, match=reason):
        staged.stages_of(network, shape)
    gradients = {name: torch.zeros(1, *value.shape) for name, value in network.named_parameters()}
    known = MapProblem(network, client_step(Undefended(), None), gradients, torch.zeros(1, 1, dtype=torch.int64), shape)
    with caplog.at_level(logging.INFO, "leakbound"):
        assert "staged" not in [method.name for method in methods(known, GradientInversionConfig())]
    assert "No staged search of" in caplog.text


def test_staged_search_is_tried_last_for_single_records_that_are_sent_as_they_are():
    known = problem_of(tiny(), pictures(2), torch.tensor([0, 1]))
    assert [method.name for method in methods(known, GradientInversionConfig())][-1] == "staged"
    noisy = dataclasses.replace(known, client=client_step(DPSGD(), 1.0))
    pairs = dataclasses.replace(known, labels=torch.zeros(1, 2, dtype=torch.int64))
    for other in (noisy, pairs):
        assert "staged" not in [method.name for method in methods(other, GradientInversionConfig())]


@pytest.mark.parametrize("better", [True, False])
@pytest.mark.parametrize("behind", [False, True])
def test_attack_takes_the_staged_search_where_it_did_better_on_the_attackers_own_records(
    few_digits, behind, better, monkeypatch
):
    """Every search is replaced by the true image with an error that is stated; the choice is the attack's own."""
    released = []
    known = {"moments": estimate_moments([few_digits.aux.images])}
    if behind:
        known |= {"channel": calibrated(known["moments"], 50.0), "level": 50.0, "defense": ChannelDefense()}
    errors = {"quasi_newton": 0.4, "adam": 0.2, "staged": 0.1 if better else 0.3}
    observe = gradient_inversion._Replica.observe

    def observed(scene, *arguments):
        released.append(observe(scene, *arguments))
        return released[-1]

    def found(known, method, *_):
        (own,) = (one for one in released if len(one.units) == len(known.labels))
        images = own.released[:, None] + errors[method.name]
        return Recovery(images.astype(np.float32), np.full(len(images), 0.5))

    monkeypatch.setattr(gradient_inversion._Replica, "observe", observed)
    monkeypatch.setattr(gradient_inversion, "recover_images", found)
    config = GradientInversionConfig(images=3, iterations=1, tv_weights=(1e-2,))
    rows, kept = gradient_inversion.invert_gradients(attack_of(few_digits, config, **known))
    mse = rows[rows.metric == "mse"].groupby("variant")["value"].mean()
    assert mse["attack"] < mse["unstaged"] if better else mse["attack"] == mse["unstaged"]
    if not behind:
        wanted = np.clip(kept["truth"] + errors["staged" if better else "adam"], -1, 1)
        np.testing.assert_allclose(kept["attack"], wanted, rtol=0, atol=1e-6)
        np.testing.assert_allclose(kept["unstaged"], np.clip(kept["truth"] + 0.2, -1, 1), rtol=0, atol=1e-6)
