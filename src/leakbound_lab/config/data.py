"""Settings of datasets, and facts about the known ones."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field, model_validator

from leakbound_lab.config.settings import Line, Name, Records, Settings, Span

CovarianceOf = Literal["aux", "members"]
"""Records whose mean and covariance define a channel: the attacker's own, or those to be protected."""
IMAGE_SIDE = 32
"""Pixels of a row and of a column of a prepared image, unless a dataset sets another side."""
ANY_SIDE = ("cnn", "lenet_sigmoid", "mlp", "mlp_wide")
"""Built-in networks for images of any side. The others are for ``IMAGE_SIDE``."""
TABLES = ("table", "table_shown")
"""Readers of tables, arrays and time series, of any shape."""
ANY_SHAPE = ("mlp", "mlp_wide")
"""Built-in networks for records of any shape."""
MOST_COLORS = 3
"""Planes of a colour image."""


@dataclass(frozen=True)
class Original:
    """Facts about a dataset that are known before it is read.

    Attributes:
        label: Name in figures.
        colors: Planes of an image.
        classes: Number of labels.
        train: Records of the original training split.
        test: Records of the original test split.
        has_test: Whether there is an original test split. Otherwise test records are drawn from the same
            ones.
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
"""Reader to facts about its dataset, in the order of figures."""
_MOST_AUX = 10_000
_LEAST = 10  # records of a split
_UNKNOWN = Original("", colors=3, classes=10, train=60000, test=10000)
_UNKNOWN_TABLE = replace(_UNKNOWN, colors=1)


class DatasetConfig(Settings):
    """Choice of the images that are members, non-members and the attacker's own."""

    reader: Name | None = None
    """Registered reader, by default the one of the dataset's own name."""
    source: Literal["auto", "folder", "hub"] = "auto"
    """Source of the images: the folder LEAKBOUND_DATA, the Hugging Face hub, or (auto) the folder if it is set."""
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    """Commit of the hub's repository, all 40 digits. Needed to read from the hub, because its files can be
    replaced."""
    members: Annotated[Records, Field(ge=10)] | None = None
    """Records that a replica trains on, drawn from the private pool. As many others are non-members. Default:
    as many as the pool has room for."""
    validation: Annotated[Records, Field(ge=10)] | None = None
    """Records of the pool on which a replica chooses its learning rate. Default: a quarter of the members."""
    pool: Annotated[Records, Field(ge=30)] | None = None
    """Private records of the original training split that replicas draw from. Default: all that aux
    leaves."""
    test: Annotated[Records, Field(ge=10)] | None = None
    """Test records, for accuracy alone, drawn from the original test split. Default: all."""
    aux: Annotated[Records, Field(ge=10)] | None = None
    """Records that the attacker owns, disjoint from the pool, drawn from the original training split.
    Default: a fifth of it, at most 10,000."""
    canaries: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Pairs of records with wrong labels for each replica. A fair coin makes one of a pair a member, in place
    of another record, and the other a non-member. Membership inference finds such records most easily."""
    side: Annotated[int, Field(ge=8, le=32, multiple_of=4)] = IMAGE_SIDE
    """Pixels of a row and of a column of each prepared image. Less than 32 only for the networks of any size:
    mlp, cnn and lenet_sigmoid."""
    label: Line | None = None
    """Column to use as the label instead of ``label``, e.g. a CelebA attribute."""
    label_nats: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Most nats that a label of the pool reveals. Each gets one randomized response, the same for all runs
    and replicas. Test and auxiliary records keep their labels. Default: all labels are kept."""
    path: Line | None = None
    """File of the readers table and table_shown, below the folder LEAKBOUND_DATA: .csv, .parquet or .npz."""
    owner: Line | None = None
    """Column of a table or Parquet file, or array of a file .npz, that says whose a record is. For the reader folders
    a regular expression whose group is the owner in a path, e.g. (p[0-9]+)_. All records of an owner are in one
    part, and all bounds are about an owner's records together, however they depend on each other. The column is
    no value. Default: records are taken as independent of each other."""
    standardize: bool = True
    """Whether values of a table are standardized by the attacker's records. If not, all must lie in -1 to
    1."""

    @model_validator(mode="after")
    def _goes_together(self) -> "DatasetConfig":
        if (self.reader in TABLES) != (self.path is not None):
            raise ValueError(
                f"path = {self.path!r} with reader = {self.reader!r}: the readers {' and '.join(TABLES)} "
                "need the path of a file .csv, .parquet or .npz, and no other reader takes one"
            )
        if self.owner is not None and self.owner == (self.label or "label"):
            raise ValueError(f"owner = {self.owner!r}: that is the column of the labels; name another one")
        if self.canaries and self.label_nats is not None:
            raise ValueError(
                "canaries with label_nats: a canary's wrong label is given, not drawn; leave one of them out"
            )
        return self

    def sizes(self, training: int) -> "Sizes":
        """Compute the sizes of all that is drawn from an original training split of so many records."""
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
class DatasetSize(Sizes):
    """Sizes of the prepared splits.

    Attributes:
        known: Whether the reader is a built-in one. For others, sizes that are not configured are guesses.
    """

    colors: int
    classes: int
    test: int
    known: bool
    side: int

    @property
    def pixels(self) -> int:
        """Values of one image."""
        return self.colors * self.side**2

    @property
    def images(self) -> int:
        """Images of all splits."""
        return self.pool + self.test + self.aux


def size_of(name: str, config: DatasetConfig) -> DatasetSize:
    """Compute the sizes of the splits that ``prepare`` makes."""
    reader = config.reader or name
    original = ORIGINALS.get(reader, _UNKNOWN_TABLE if reader in TABLES else _UNKNOWN)
    test = config.test or original.test
    training = original.train
    if not original.has_test:  # test records are taken from the same ones
        training += original.test - test
    facts = {"colors": original.colors, "classes": original.classes, "test": test, "side": config.side}
    return DatasetSize(**vars(config.sizes(training)), **facts, known=reader in ORIGINALS)


def image_shape(dimension: int) -> tuple[int, int]:
    """Compute colors and side of square images of so many values.

    Raises:
        ValueError: If no square image of one color or three has so many values.
    """
    for colors in (1, MOST_COLORS):
        side = math.isqrt(dimension // colors)
        if colors * side**2 == dimension:
            return colors, side
    raise ValueError(f"{dimension} values are no square image of 1 or {MOST_COLORS} colors")


class BoxWeights(Settings):
    """Per-pixel noise weights β of the personalized channel: one rectangle of the image weighs more.

    Rows and columns refer to images of 32×32 pixels. On smaller images the rectangle covers the same part,
    rounded outwards to whole pixels.
    """

    rows: Span = (12, 20)
    """First row of the rectangle and the row after its last."""
    columns: Span = (8, 24)
    """First column of the rectangle and the column after its last."""
    weight: Annotated[float, Field(ge=1e-6, le=1e6)] = 50.0
    """β inside the rectangle; it is 1 outside."""

    @model_validator(mode="after")
    def _inside_the_image(self) -> "BoxWeights":
        for name in ("rows", "columns"):
            first, after = getattr(self, name)
            if not 0 <= first < after <= IMAGE_SIDE:
                raise ValueError(
                    f"{name} = [{first}, {after}] must satisfy 0 <= first < after <= {IMAGE_SIDE}"
                )
        return self

    def on(self, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Scale rows and columns of the rectangle, first and one after the last, to images of another side."""
        rows, columns = (
            (first * side // IMAGE_SIDE, -(-end * side // IMAGE_SIDE))
            for first, end in (self.rows, self.columns)
        )
        return rows, columns
