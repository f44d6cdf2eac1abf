"""Small records, public and private ones of one law, loaders and engines for them, and processes that use these."""

import os
import pickle
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from leakbound import ChannelEngine, Leakage, Ledger
from leakbound.channels import GaussianChannel

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


def made(ledger):
    """A ledger's path, at which one is made if none is there."""
    if isinstance(ledger, str | Path) and not Path(ledger).exists():
        Ledger.create(ledger)
    return ledger


def engine_of(target=None, public=None, ledger=None, **options) -> ChannelEngine:
    """Engine for such records, by default for three uses. Its ledger is made if it is not there."""
    public = gaussian(400) if public is None else public
    options["ledger"] = made(ledger)
    return ChannelEngine.for_data(public, target or Leakage(3.0, uses=3), **{"value_range": RANGE, **options})


def precision(channel: GaussianChannel) -> np.ndarray:
    """Aᵀ N⁻¹ A of one use, as a full matrix."""
    size = channel.dimension
    basis = np.eye(size) if channel.basis is None else channel.basis
    gain = np.ones(size) if channel.gain is None else channel.gain
    inside = np.divide(gain**2, channel.variances, out=np.zeros(size), where=channel.variances > 0)
    return (basis * inside) @ basis.T


def forked(work):
    """Fork a process that works, and return a function that waits for what it returns, or for its error's text."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            found = work()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        with open(write, "wb") as stream:
            stream.write(pickle.dumps(found))
        os._exit(0)
    os.close(write)

    def result():
        with open(read, "rb") as stream:
            found = pickle.loads(stream.read())
        os.waitpid(child, 0)
        return found

    return result
