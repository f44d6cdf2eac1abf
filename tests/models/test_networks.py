import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.models.classifier import ImageShapeError
from leakbound_lab.models.small import LeNet, SigmoidLeNet
from leakbound_lab.registries import MODELS


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
        ("mlp", 3, 10, 98_666),
        ("mlp_wide", 3, 10, 777_410),
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


def with_max_pool2d(model, images):
    """The network as torch's own pooling computes it, in the memory layout that it has without training."""
    x = F.relu(F.max_pool2d(model.conv1(model.arranged(images)), 2))
    x = F.relu(F.max_pool2d(model.conv2(x), 2))
    return model.head(F.relu(model.fc2(F.relu(model.fc1(x.flatten(1))))))


def uneven_images(colors):
    """Noise, constant images whose pooled values are all equal, and values that are not finite."""
    images = torch.randn(6, colors, 32, 32, generator=torch_generator(0, "images"))
    images[1:3] = torch.tensor([0.0, -1.0]).view(2, 1, 1, 1)
    images[3, :, 3, 4], images[4, :, 20, 9] = math.nan, -math.inf
    return images


@pytest.mark.parametrize("colors", [1, 3])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_lenet_without_gradients_has_the_bytes_of_torchs_pooling(colors, precision):
    model, images = models.build("lenet", colors, 10, torch_generator(0, "init")), uneven_images(colors)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision is torch.bfloat16):
        found, expected = model(images), with_max_pool2d(model, images)
        ties, ties_expected = model(images[1:3]), with_max_pool2d(model, images[1:3])
    assert found.isnan().any()
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert found.dtype == precision
    assert torch.equal(ties, ties_expected)


@pytest.mark.parametrize("colors", [1, 3])
def test_lenet_takes_images_that_are_arranged_for_it_as_they_are(colors):
    model, images = models.build("lenet", colors, 10, torch_generator(0, "init")), uneven_images(colors)
    arranged = model.arranged(images)
    assert torch.equal(arranged.nan_to_num(7.0), images.nan_to_num(7.0))
    assert model.arranged(arranged) is arranged
    with torch.no_grad():
        assert torch.equal(model(arranged[:3]), model(images[:3]))


@pytest.mark.parametrize("transformed", [False, True])
def test_gradient_of_an_image_goes_to_the_first_of_equal_values(transformed):
    """As torch's pooling has it: the larger of two equal slices would give half of it to each."""
    model, images = models.build("lenet", 3, 10, torch_generator(0, "init")), uneven_images(3)[:3]
    model.requires_grad_(False)

    def slopes(function):
        if transformed:
            return torch.func.grad(lambda shown: torch.vmap(lambda one: function(one[None])[0])(shown).sum())(images)
        shown = images.clone().requires_grad_()
        return torch.autograd.grad(function(shown).sum(), shown)[0]

    torch.testing.assert_close(slopes(model), slopes(lambda shown: with_max_pool2d(model, shown)))


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


@pytest.mark.parametrize("name", MODELS.builtin)
def test_opacus_finds_nothing_wrong_with_what_is_built_in(name):
    """So a training with DP need not load it to ask."""
    from opacus.validators import ModuleValidator

    with torch.device("meta"):
        model = MODELS.get(name)(3, 10)
    assert ModuleValidator.validate(model, strict=False) == []
