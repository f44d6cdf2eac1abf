import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakbound import models
from leakbound.models.classifier import ImageShapeError
from leakbound.models.small import LeNet, SigmoidLeNet
from leakbound.randomness.seeding import torch_generator
from leakbound.registry import MODELS


@pytest.mark.parametrize(
    ("name", "colors", "classes", "parameters"),
    [  # of the large ones as the paper prints them: 3.59e7, 1.34e8, 4.90e6
        ("alexnet", 3, 10, 35_857_482),
        ("vgg16", 3, 10, 134_309_962),
        ("resnet10", 3, 10, 4_903_242),
        ("lenet", 3, 10, 62_006),
        ("lenet", 1, 10, 61_706),
        ("lenet", 3, 2, 61_326),
        ("lenet_sigmoid", 3, 10, 15_826),
        ("lenet_sigmoid", 1, 10, 15_226),
    ],
)
def test_model_has_the_documented_number_of_parameters(name, colors, classes, parameters):
    with torch.device("meta"):
        model = MODELS.get(name)(colors, classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_lenet_equals_relu_before_pooling():
    model = models.build("lenet", 3, 10, torch_generator(0, "init"))
    images = torch.randn(4, 3, 32, 32, generator=torch_generator(0, "images"))
    layers = nn.Sequential(
        model.conv1, nn.ReLU(), nn.MaxPool2d(2), model.conv2, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        model.fc1, nn.ReLU(), model.fc2, nn.ReLU(), model.head,
    )  # fmt: skip
    torch.testing.assert_close(model(images), layers(images))


@pytest.mark.parametrize("shape", [(2, 1, 32, 32), (2, 3, 28, 28), (2, 3, 32, 31)])
def test_model_names_the_images_that_it_cannot_take(shape):
    model = LeNet(3, 10)
    with pytest.raises(ImageShapeError, match=rf"{shape[1]} color\(s\) and {shape[2]}×{shape[3]}.*expects 3 color"):
        model(torch.zeros(shape))


def test_model_needs_two_classes():
    with pytest.raises(ValueError, match="classes = 1"):
        LeNet(3, 1)


@pytest.mark.parametrize("name", ["lenet", "lenet_sigmoid"])
def test_build_depends_on_its_generator_and_on_nothing_else(name):
    before = torch.get_rng_state()
    first = models.build(name, 3, 10, torch_generator(1, "init")).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = models.build(name, 3, 10, torch_generator(1, "init")).state_dict()
    other = models.build(name, 3, 10, torch_generator(2, "init")).state_dict()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not any(torch.equal(first[key], other[key]) for key in first)


def test_initialize_draws_the_default_distributions_of_torch():
    model = nn.Sequential(nn.Conv2d(3, 64, 5), nn.GroupNorm(4, 64), nn.Linear(400, 500), nn.LayerNorm(7))
    for parameter in model.parameters():
        nn.init.constant_(parameter, math.nan)
    models.initialize(model, torch_generator(0, "init"))
    for layer, fan_in in ((model[0], 75), (model[2], 400)):
        bound = 1 / math.sqrt(fan_in)
        for parameter in (layer.weight, layer.bias):
            assert parameter.abs().max() <= bound
            assert parameter.abs().max() > 0.9 * bound
        # A uniform variable has variance bound²/3; 6 % is 4.6 standard errors for the 4,800 weights of the convolution.
        assert layer.weight.var().item() == pytest.approx(bound**2 / 3, rel=0.06)
    for layer in (model[1], model[3]):
        assert torch.equal(layer.weight, torch.ones_like(layer.weight))
        assert torch.equal(layer.bias, torch.zeros_like(layer.bias))


def test_sigmoid_lenet_draws_weights_of_zhu_et_al():
    model = SigmoidLeNet(3, 10)
    models.initialize(model, torch_generator(0, "init"))
    values = torch.cat([parameter.flatten() for parameter in model.parameters()])
    assert values.abs().max() <= 0.5
    assert values.var().item() == pytest.approx(1 / 12, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate", "steps"), [("alexnet", 0.01, 18), ("resnet10", 0.01, 10), ("vgg16", 0.003, 10)]
)
def test_network_learns_a_handful_of_images_from_its_first_weights(name, rate, steps):
    """VGG16 has half a gigabyte of weights, so it is shown few images."""
    network = models.build(name, 3, 10, torch_generator(0, "init"))
    images, labels = torch.rand(4, 3, 32, 32, generator=torch_generator(0, "images")) * 2 - 1, torch.arange(4)
    F.cross_entropy(network(images), labels).backward()
    assert all(parameter.grad.any() for parameter in network.parameters())  # each layer takes part
    optimizer = torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, fused=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
