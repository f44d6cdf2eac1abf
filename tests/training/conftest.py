"""Real handwriting, small enough to train on within a test."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits

from asking import calibrated, training_of
from images import gathered
from leakbound.channels import estimate_moments
from leakbound_lab.config.defenses import (
    DPPSAC,
    DPSGD,
    ChannelDefense,
    Compression,
    GradientCompression,
    LargeBatch,
    PACPrivacy,
    ParameterNoise,
)
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import ImageDataset, Split


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
def channel_of(shape: str, capacity: float):
    return calibrated(estimate_moments([handwriting().pool.images]), capacity, shape)


@pytest.fixture(scope="session")
def channel():
    return channel_of


@pytest.fixture(scope="session")
def through():
    """Changes of a request for a channel defense."""

    def make(shape, noise="fresh", level=8.0):
        defense = ChannelDefense(shape=shape, noise=noise)
        return {"defense": defense, "level": level, "channel": channel_of(shape, level)}

    return make


@pytest.fixture(scope="session")
def under(through):
    """Changes of a request for a defense by name: of a channel its shape, with ``_frozen`` behind it or not."""
    others = {
        "none": {},
        "dpsgd": {"defense": DPSGD(), "level": 1.0},
        "dppsac": {"defense": DPPSAC(), "level": 1.0},
        "parameter_noise": {"defense": ParameterNoise(), "level": 0.01},
        "pac": {"defense": PACPrivacy(public=60), "level": 100.0},
        "gradient_compression": {"defense": GradientCompression(), "level": 0.1},
        "large_batch": {"defense": LargeBatch(), "level": 3.0},
        "compression": {"defense": Compression(), "level": 1.0},
    }

    def make(case):
        shape, frozen, _ = case.partition("_frozen")
        return others[case] if case in others else through(shape, "frozen" if frozen else "fresh")

    return make


@pytest.fixture
def request_for(digits):
    def make(**changes):
        training = {"evaluations": 2, **changes.pop("training", {})}
        values = {"dataset": digits, "model": "lenet", "rounds": 4, "batch_size": 32}
        values |= {"config": TrainingConfig(**training), "seed": 7, "slug": "digits/lenet/test"}
        return training_of(**values | changes)

    return make
