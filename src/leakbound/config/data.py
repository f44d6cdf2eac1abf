"""Settings of datasets, and facts of the known ones."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from leakbound.config.settings import Line, Name, Records, Settings

CovarianceOf = Literal["aux", "members"]
"""Records whose mean and covariance a channel is made from: the attacker's own, or those that it is to protect."""
IMAGE_SIDE = 32
"""Pixels of a row and of a column of a prepared image, where a dataset does not say otherwise."""
ANY_SIDE = ("cnn", "lenet_sigmoid", "mlp")
"""Networks of ours for images of any side; the others are for ``IMAGE_SIDE``."""
TABLES = ("table", "table_shown")
"""Readers of tables, arrays and time series, of any shape."""
ANY_SHAPE = ("mlp",)
"""Networks of ours for records of any shape."""
MOST_COLORS = 3
"""Planes of a colour image."""


@dataclass(frozen=True)
class Original:
    """Facts of a dataset that are known before anything is read.

    Attributes:
        label: Name in figures.
        colors: Planes of an image.
        classes: Number of labels.
        train: Records of the original training split.
        test: Records of the original test split.
        has_test: Whether there is an original test split, or its records are drawn from the same ones as all others.
    """

    label: str
    colors: int
    classes: int
    train: int
    test: int
    has_test: bool = True


ORIGINALS = {
    "cifar10": Original("CIFAR-10", colors=3, classes=10, train=50000, test=10000),
    "celeba": Original("CelebA", colors=3, classes=2, train=162770, test=19962),
    "svhn": Original("SVHN", colors=3, classes=10, train=73257, test=26032),
    "fashion_mnist": Original("Fashion-MNIST", colors=1, classes=10, train=60000, test=10000),
    "mnist": Original("MNIST", colors=1, classes=10, train=60000, test=10000),
    "digits": Original("digits", colors=1, classes=10, train=1438, test=359, has_test=False),
}
"""Reader to what is known of its dataset, in the order of figures."""
_MOST_AUX = 10_000
_LEAST = 10  # records of a part
_UNKNOWN = Original("", colors=3, classes=10, train=60000, test=10000)
_UNKNOWN_TABLE = replace(_UNKNOWN, colors=1)


class DatasetConfig(Settings):
    """Choice of the images that are members, non-members and the attacker's own."""

    reader: Name | None = None
    """Registered reader; by default the one of the dataset's own name."""
    source: Literal["auto", "folder", "hub"] = "auto"
    """Source of the images: the folder LEAKBOUND_DATA, the Hugging Face hub, or (auto) the folder if it is set."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit of the hub's repository, all 40 digits; needed where the hub is asked, as its files can be replaced."""
    members: Annotated[Records, Field(ge=10)] | None = None
    """Records that a replica trains on, drawn from the private pool, and as many others as non-members; if
    not given, as many as the pool has room for."""
    validation: Annotated[Records, Field(ge=10)] | None = None
    """Records of the pool on which a replica chooses its learning rate; a quarter of the members if not given."""
    pool: Annotated[Records, Field(ge=30)] | None = None
    """Private records that replicas draw from, of the original training split; all that aux leaves if not given."""
    test: Annotated[Records, Field(ge=10)] | None = None
    """Test records, for accuracy alone, drawn from the original test split; all if not given."""
    aux: Annotated[Records, Field(ge=10)] | None = None
    """Records that the attacker owns, disjoint from the pool, drawn from the original training split; a fifth
    of it, at most 10,000, if not given."""
    canaries: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Pairs of records with wrong labels for each replica, of which a fair coin makes one a member, in place
    of another record, and the other a non-member: the records that membership inference finds most easily."""
    side: Annotated[int, Field(ge=8, le=32, multiple_of=4)] = IMAGE_SIDE
    """Pixels of a row and of a column of each prepared image; less than 32 for networks of any size: mlp, cnn
    and lenet_sigmoid."""
    label: Line | None = None
    """Column to use as the label instead of ``label``, e.g. a CelebA attribute."""
    label_nats: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most nats that a label of the pool reveals: each gets one randomized response, the same for all runs and
    replicas. Test and auxiliary records keep their labels. If not given, all do."""
    path: Line | None = None
    """File of the readers table and table_shown, below the folder LEAKBOUND_DATA: .csv, .parquet or .npz."""
    standardize: bool = True
    """Whether values of a table are standardized by the attacker's records; if not, all lie in -1 to 1."""

    @model_validator(mode="after")
    def _file_of_a_table(self) -> "DatasetConfig":
        if (self.reader in TABLES) != (self.path is not None):
            raise ValueError(
                f"path = {self.path!r} with reader = {self.reader!r}: the readers {' and '.join(TABLES)} "
                "need the path of a file .csv, .parquet or .npz, and no other reader takes one"
            )
        return self

    @model_validator(mode="after")
    def _wrong_labels_are_not_drawn(self) -> "DatasetConfig":
        if self.canaries and self.label_nats is not None:
            raise ValueError(
                "canaries with label_nats: a canary's wrong label is given, not drawn; leave one of them out"
            )
        return self

    def sizes(self, training: int) -> "Sizes":
        """Sizes of what is drawn from an original training split of so many records."""
        aux = min(training // 5, _MOST_AUX) if self.aux is None else self.aux
        pool = max(training - aux, 0) if self.pool is None else self.pool
        # Twice the members and a quarter of them fill the pool; other shares follow from what is given.
        members = self.members
        if members is None:
            members = max(pool - (self.validation or _LEAST), 0) // 2
            if self.validation is None:
                members = min(members, pool * 4 // 9)
        validation = max(members // 4, _LEAST) if self.validation is None else self.validation
        return Sizes(pool, aux, members, validation)


@dataclass(frozen=True)
class Sizes:
    """Sizes of pool and attacker's records, and of what a replica draws from the pool."""

    pool: int
    aux: int
    members: int
    validation: int

    @property
    def drawn(self) -> int:
        """Records of the pool that a replica draws: members, as many non-members, validation."""
        return 2 * self.members + self.validation


@dataclass(frozen=True)
class DatasetSize:
    """Sizes of the prepared splits.

    Attributes:
        known: Whether the reader is one of ours; else sizes that are not configured are guessed.
    """

    colors: int
    classes: int
    pool: int
    members: int
    validation: int
    test: int
    aux: int
    known: bool
    side: int = IMAGE_SIDE

    @property
    def pixels(self) -> int:
        """Values of one image."""
        return self.colors * self.side**2

    @property
    def images(self) -> int:
        """Images of all splits."""
        return self.pool + self.test + self.aux


def size_of(name: str, config: DatasetConfig) -> DatasetSize:
    """Sizes of the splits that ``prepare`` would make."""
    reader = config.reader or name
    original = ORIGINALS.get(reader, _UNKNOWN_TABLE if reader in TABLES else _UNKNOWN)
    test = config.test or original.test
    training = original.train
    if not original.has_test:  # test records are taken from the same ones
        training += original.test - test
    drawn = config.sizes(training)
    return DatasetSize(
        original.colors,
        original.classes,
        drawn.pool,
        drawn.members,
        drawn.validation,
        test,
        drawn.aux,
        reader in ORIGINALS,
        config.side,
    )


def image_shape(dimension: int) -> tuple[int, int]:
    """Colors and side of square images of so many values, as prepared images are.

    Raises:
        ValueError: If no square image of one color or three has so many values.
    """
    for colors in (1, MOST_COLORS):
        side = math.isqrt(dimension // colors)
        if colors * side**2 == dimension:
            return colors, side
    raise ValueError(f"{dimension} values are no square image of 1 or {MOST_COLORS} colors")
