"""Real handwriting, small enough to train on within a test."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from images import gathered
from leakbound.channels import estimate_moments
from leakbound.config.defenses import ChannelDefense, Undefended
from leakbound.config.training import TrainingConfig
from leakbound.datasets import ImageDataset, Split
from leakbound.registry import SHAPES
from leakbound.training import TrainingRequest


@functools.cache
def handwriting() -> ImageDataset:
    """400 members, as many others and 100 validation records of a pool of 1,000; 300 test records, 100 auxiliary."""
    pixels, labels = load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    images = F.interpolate(images, size=(32, 32), mode="bilinear", antialias=True).numpy()
    order = np.random.default_rng(0).permutation(len(labels))
    pool, test, aux = (
        Split(images[rows], labels[rows].astype(np.int64)) for rows in np.split(order, [1000, 1300, 1400])[:3]
    )
    return gathered(pool, test=test, aux=aux, members=400, validation=100, name="digits", secret="s" * 64)


@pytest.fixture(scope="session")
def digits():
    return handwriting()


@functools.cache
def calibrated(shape: str, capacity: float):
    images = handwriting().pool.images
    found = SHAPES.get(shape)()
    return found.calibrate(found.decompose(estimate_moments([images.reshape(len(images), -1)])), capacity)


@pytest.fixture(scope="session")
def channel():
    return calibrated


@pytest.fixture(scope="session")
def through():
    """Changes of a request for a channel defense."""

    def make(shape, noise="fresh", level=8.0):
        defense = ChannelDefense(shape=shape, noise=noise)
        return {"defense": defense, "level": level, "channel": calibrated(shape, level)}

    return make


@pytest.fixture
def request_for(digits):
    def make(**changes):
        training = {"evaluations": 2, **changes.pop("training", {})}
        values = {
            "dataset": digits,
            "model": "lenet",
            "defense": Undefended(),
            "level": None,
            "rounds": 4,
            "batch_size": 32,
            "learning_rates": (0.05,),
            "config": TrainingConfig(**training),
            "seed": 7,
            "slug": "digits/lenet/test",
        }
        return TrainingRequest(**{**values, **changes})

    return make
