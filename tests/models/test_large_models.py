"""AlexNet, VGG16 and ResNet10; VGG16 has half a gigabyte of weights, so it is built once and shown few images."""

import pytest
import torch
import torch.nn.functional as F
from opacus.validators import ModuleValidator
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from leakbound import models
from leakbound.attacks.gradient_inversion.gradient_matching import GradientMatching
from leakbound.models.gradients import record_gradients
from leakbound.randomness.seeding import torch_generator
from leakbound.registry import MODELS

LARGE = ("alexnet", "vgg16", "resnet10")
WIDTHS = {"alexnet": 4096, "vgg16": 4096, "resnet10": 512}


def without_weights(name: str, colors: int = 3) -> nn.Module:
    with torch.device("meta"):
        return MODELS.get(name)(colors, 10)


@pytest.fixture(scope="module")
def networks():
    """Each large network, built once."""
    return {name: models.build(name, 3, 10, torch_generator(0, "init")) for name in LARGE}


@pytest.fixture
def network(networks, request):
    """The network that a test asks for; only the last test changes its weights."""
    return networks[request.param]


every = pytest.mark.parametrize("network", LARGE, indirect=True)


def noise_images(count: int, colors: int = 3) -> torch.Tensor:
    return torch.rand(count, colors, 32, 32, generator=torch_generator(0, "images")) * 2 - 1


@pytest.mark.parametrize(
    ("name", "colors", "parameters", "published"),
    [
        ("alexnet", 3, 35_857_482, 3.59e7),
        ("alexnet", 1, 35_856_330, 3.59e7),
        ("vgg16", 3, 134_309_962, 1.34e8),
        ("vgg16", 1, 134_308_810, 1.34e8),
        ("resnet10", 3, 4_903_242, 4.90e6),
        ("resnet10", 1, 4_902_090, 4.90e6),
    ],
)
def test_network_has_the_documented_and_nearly_the_published_number_of_parameters(name, colors, parameters, published):
    count = sum(parameter.numel() for parameter in without_weights(name, colors).parameters())
    assert count == parameters
    assert count == pytest.approx(published, rel=0.01)


@pytest.mark.parametrize("name", LARGE)
def test_every_defense_can_train_the_network(name):
    network = without_weights(name)
    assert ModuleValidator.validate(network, strict=False) == []
    assert not any(isinstance(layer, _BatchNorm | _DropoutNd) for layer in network.modules())
    assert not any(getattr(layer, "inplace", False) for layer in network.modules())


@every
def test_network_is_its_head_on_its_features(network, request):
    images = noise_images(2)
    with torch.no_grad():
        features, logits = network.features(images), network(images)
        torch.testing.assert_close(logits, network.head(features))
    assert features.shape == (2, network.head.in_features)
    assert network.head.in_features == WIDTHS[request.node.callspec.params["network"]]


@every
def test_gradient_of_a_record_is_told_from_that_of_another(network):
    image, label = noise_images(1), torch.tensor([3])
    matching = GradientMatching(network, record_gradients(network, image, label), (3, 32, 32))
    assert matching.factored
    candidates = image.clone().requires_grad_()
    assert matching.distances(candidates, label).item() == pytest.approx(0.0, abs=1e-5)
    distance = matching.distances((-image).requires_grad_(), label)
    assert distance.item() > 0.01


def test_vgg_repeats_the_one_position_that_its_poolings_leave(networks):
    network, seen = networks["vgg16"], []
    handle = network.fc1.register_forward_hook(lambda _, inputs, __: seen.append(inputs[0]))
    with torch.no_grad():
        network(noise_images(1))
    handle.remove()
    positions = seen[0].view(512, 49)
    assert torch.equal(positions, positions[:, :1].expand(-1, 49))
    assert positions.std() > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "rate", "steps"),
    [("alexnet", 0.01, 18), ("resnet10", 0.01, 10), ("vgg16", 0.003, 10)],
    indirect=["network"],
)
def test_network_learns_a_handful_of_images_from_its_first_weights(network, rate, steps):
    images, labels = noise_images(4), torch.tensor([0, 1, 2, 3])
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    network.zero_grad(set_to_none=True)
    assert losses[-1] < 0.2 * losses[0]
