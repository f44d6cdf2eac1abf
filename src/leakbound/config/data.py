"""Settings of datasets, and facts of the known ones."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from leakbound.config.settings import Line, Name, Records, Settings

CovarianceOf = Literal["aux", "members"]
"""Records whose mean and covariance a channel is made from: the attacker's own, or those that it is to protect."""
IMAGE_SIDE = 32
"""Pixels of a row and of a column of every prepared image."""
MOST_COLORS = 3
"""Planes of a colour image."""


@dataclass(frozen=True)
class Original:
    """Facts of a dataset that are known before anything is read.

    Attributes:
        colors: Planes of an image.
        classes: Number of labels.
        train: Records of the original training split.
        test: Records of the original test split.
    """

    colors: int
    classes: int
    train: int
    test: int


ORIGINALS = {
    "digits": Original(colors=1, classes=10, train=1297, test=500),
    "mnist": Original(colors=1, classes=10, train=60000, test=10000),
    "fashion_mnist": Original(colors=1, classes=10, train=60000, test=10000),
    "cifar10": Original(colors=3, classes=10, train=50000, test=10000),
    "svhn": Original(colors=3, classes=10, train=73257, test=26032),
    "celeba": Original(colors=3, classes=2, train=162770, test=19962),
}
"""Reader to what is known of its dataset."""
_UNKNOWN = Original(colors=3, classes=10, train=60000, test=10000)


class DatasetConfig(Settings):
    """Choice of the images that are members, non-members and the attacker's own."""

    reader: Name | None = None
    """Registered reader; by default the one of the dataset's own name."""
    source: Literal["auto", "folder", "hub"] = "auto"
    """Source of the images: the folder LEAKBOUND_DATA, the Hugging Face hub, or (auto) the folder if it is set."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit of the hub's repository, all 40 digits; needed where the hub is asked, as its files can be replaced."""
    members: Annotated[Records, Field(ge=10)] | None = None
    """Training records (the members), drawn from the original training split; all that are left if not given."""
    test: Annotated[Records, Field(ge=10)] | None = None
    """Test records (the non-members), drawn from the original test split; all if not given."""
    aux: Annotated[Records, Field(ge=10)] = 1000
    """Records that the attacker owns, disjoint from both, drawn from the original training split."""
    label: Line | None = None
    """Column to use as the label instead of ``label``, e.g. a CelebA attribute."""


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
