"""Sizes of datasets, known without reading them."""

from dataclasses import dataclass

from leakbound.config.data import IMAGE_SIDE, ORIGINALS, DatasetConfig, Original

_UNKNOWN = Original(colors=3, classes=10, train=60000, test=10000)


@dataclass(frozen=True)
class DatasetSize:
    """Sizes of the prepared splits.

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
        return self.colors * IMAGE_SIDE**2

    @property
    def images(self) -> int:
        """Images of all splits."""
        return self.members + self.test + self.aux


def size_of(name: str, config: DatasetConfig) -> DatasetSize:
    """Sizes of the splits that ``prepare`` would make."""
    reader = config.reader or name
    original = ORIGINALS.get(reader, _UNKNOWN)
    members = max(original.train - config.aux, 1) if config.members is None else config.members
    test = config.test or original.test
    return DatasetSize(original.colors, original.classes, members, test, config.aux, reader in ORIGINALS)
