"""Sizes of datasets, known without reading them."""

from __future__ import annotations

from dataclasses import dataclass

from leakbound.config.data import COLORS, DatasetConfig

_PIXELS = 32 * 32
# Classes, and records of the original training and test splits.
_ORIGINALS = {
    "digits": (10, 1297, 500),
    "mnist": (10, 60000, 10000),
    "fashion_mnist": (10, 60000, 10000),
    "cifar10": (10, 50000, 10000),
    "svhn": (10, 73257, 26032),
    "celeba": (2, 162770, 19962),
}
_UNKNOWN = (10, 60000, 10000)


@dataclass(frozen=True)
class DatasetSize:
    """How large the prepared splits are.

    Attributes:
        known: Whether the reader is one of ours; else sizes that are not configured are guessed.
    """

    colors: int
    classes: int
    members: int
    test: int
    aux: int
    known: bool

    @property
    def pixels(self) -> int:
        """Values of one image."""
        return self.colors * _PIXELS

    @property
    def images(self) -> int:
        """Images of all splits."""
        return self.members + self.test + self.aux


def size_of(name: str, config: DatasetConfig) -> DatasetSize:
    """Sizes of the splits that ``prepare`` would make."""
    reader = config.reader or name
    classes, train, test = _ORIGINALS.get(reader, _UNKNOWN)
    members = max(train - config.aux, 1) if config.members is None else config.members
    return DatasetSize(COLORS.get(reader, 3), classes, members, config.test or test, config.aux, reader in _ORIGINALS)
