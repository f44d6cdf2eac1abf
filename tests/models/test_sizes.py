"""Networks and images smaller than 32×32."""

import math

import numpy as np
import pytest
import torch

from leakbound.randomness.seeding import torch_generator
from leakbound_lab import models
from leakbound_lab.config.data import ANY_SIDE, IMAGE_SIDE, BoxWeights, DatasetConfig, image_shape, size_of
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.config.reading import config_of
from leakbound_lab.datasets import prepare
from leakbound_lab.models import ImageShapeError, memory
from leakbound_lab.registries import MODELS

SMALL = {"members": 100, "test": 300, "aux": 500, "side": 8}


@pytest.mark.parametrize("name", sorted(MODELS.builtin))
def test_networks_said_to_take_any_side_do_and_the_others_say_so(name):
    if name not in ANY_SIDE:
        with pytest.raises(ImageShapeError, match=rf"{name}: it takes images of 32×32 pixels alone, not of 8×8"):
            models.build(name, 1, 10, torch_generator(0, "init"), 8)
        return
    for side in (8, 20, IMAGE_SIDE):
        network = models.build(name, 1, 10, torch_generator(0, "init"), side)
        assert network(torch.zeros(2, 1, side, side)).shape == (2, 10)


def test_digits_keep_their_own_pixels():
    from sklearn.datasets import load_digits

    own = {image.tobytes() for image in (load_digits().images / 8 - 1).astype(np.float32)}
    dataset = prepare("digits", DatasetConfig(**SMALL), 0)
    assert dataset.side == 8
    assert {image.tobytes() for image in np.round((dataset.pool.images + 1) * 8) / 8 - 1} <= own
    assert size_of("digits", DatasetConfig(**SMALL)).pixels == math.prod(dataset.pool.images.shape[1:])


def test_the_shape_of_an_image_follows_from_its_number_of_values():
    assert [image_shape(count) for count in (64, 192, 1024, 3072)] == [(1, 8), (3, 8), (1, 32), (3, 32)]
    with pytest.raises(ValueError, match="65 values are no square image"):
        image_shape(65)


@pytest.mark.parametrize(("side", "box"), [(32, ((12, 20), (8, 24))), (8, ((3, 5), (2, 6))), (12, ((4, 8), (3, 9)))])
def test_the_box_of_weights_covers_the_same_part_of_smaller_images(side, box):
    assert BoxWeights().on(side) == box


def test_a_study_whose_network_cannot_take_the_images_is_refused_before_it_runs():
    study = {"datasets": ["digits"], "models": ["lenet"], "defenses": {"none": []}, "rounds": [1], "batch_sizes": [1]}
    with pytest.raises(ConfigError, match=r"studies.a.models = lenet: takes images of 32×32.*datasets.digits.side = 8"):
        config_of({"preset": "x", "datasets": {"digits": SMALL}, "studies": {"a": study}}, "test")


def test_stacks_on_a_cpu_are_as_large_as_its_cache_and_none_where_networks_are_large():
    small, large = (
        models.build(*words) for words in (("mlp", 1, 10, torch.Generator(), 8), ("lenet", 3, 10, torch.Generator()))
    )
    assert memory.stack_size("auto", 1000, "cpu", small, (1, 8, 8), 32) > 40
    assert memory.stack_size("auto", 3, "cpu", small, (1, 8, 8), 32) == 3
    assert memory.stack_size("auto", 0, "cpu", small, (1, 8, 8), 32) == 1
    assert memory.stack_size("auto", 40, "cpu", large, (3, 32, 32), 64) == 1


@pytest.mark.parametrize(
    ("name", "networks"), [("lenet", 10), ("cnn", 10), ("resnet10", 1), ("alexnet", 1), ("vgg16", 1)]
)
def test_stacks_on_a_gpu_are_of_small_networks_which_alone_are_faster_in_one(name, networks, monkeypatch):
    monkeypatch.setattr(memory, "free_bytes", lambda device: 80 * 2**30)
    network = models.build(name, 3, 10, torch.Generator())
    assert memory.stack_size("auto", 10, "cuda", network, (3, 32, 32), 64) == networks
    assert memory.stack_size(10, 10, "cuda", network, (3, 32, 32), 64) == 10
