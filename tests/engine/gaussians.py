"""Small records, public and private ones of one law, and loaders of them."""

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 4
RANGE = (-50.0, 50.0)
MIXING = np.random.default_rng(7).normal(size=(WIDTH, WIDTH))


def gaussian(count: int, seed: int = 0) -> np.ndarray:
    """Gaussian records (count, 4), float32."""
    draws = np.random.default_rng(seed).normal(size=(count, WIDTH))
    return (draws @ MIXING + 1.0).astype(np.float32)


def private(count: int = 20, seed: int = 1) -> TensorDataset:
    """Records with their own index as a label."""
    return TensorDataset(torch.from_numpy(gaussian(count, seed)), torch.arange(count))


def batches(data, **options) -> DataLoader:
    """Loader of shuffled batches of six."""
    options = {"batch_size": 6, "shuffle": True, "generator": torch.Generator().manual_seed(3), **options}
    return DataLoader(data, **options)


def by_record(loader) -> dict[int, torch.Tensor]:
    """Noisy input of each record in one epoch."""
    return {int(label): row for inputs, labels in loader for row, label in zip(inputs, labels, strict=True)}
