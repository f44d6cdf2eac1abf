"""Handwriting that many attacks are tried on."""

import pytest

from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import ImageDataset, prepare


@pytest.fixture(scope="session")
def few_digits() -> ImageDataset:
    return prepare("digits", DatasetConfig(members=60, aux=100, pool=200, test=10), seed=0)
