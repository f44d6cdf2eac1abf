"""Splits: a private pool, the attacker's records and test records, and what each replica draws from the pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from jaxtyping import Float, Int

from leakbound.config.data import DatasetConfig
from leakbound.datasets.canaries import Canaries, canary_problem, wrong_labels
from leakbound.datasets.records import DatasetError, RawDataset, Records, checked_labels, checked_pixels
from leakbound.randomness.seeding import derive_seed, numpy_generator
from leakbound.registry import DATASETS
from leakbound.storage import arrays_hash, limits

_SPLITS = ("pool", "test", "aux")
_FIELDS = ("images", "labels")
_POOL_TEST_FRACTION = 0.2
_CHUNK = 2**24  # pixels decoded at once: they are held in memory, as floats too, until they are resized
_MOST_AT_ONCE = 256  # images


@dataclass(frozen=True)
class Split:
    """Prepared images, or other records (n, 1, rows, columns), float32 in [-1, 1], and their class indices, int64."""

    images: Float[np.ndarray, "n colors height width"]
    labels: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def chosen(self, rows: Int[np.ndarray, " k"]) -> Split:
        """Some of the records, copied."""
        return Split(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Drawing:
    """Rule by which each replica draws its records from the private pool.

    Attributes:
        members: Records that a replica trains on. It has as many non-members.
        validation: Records that its learning rate and moment of stopping are chosen on.
        seed: Seed of the configuration.
        stratified: Whether each part has the pool's classes in proportion.
        canaries: Pairs of records with wrong labels, one of each among the members and the other among the
            non-members.
    """

    members: int
    validation: int
    seed: int
    stratified: bool = True
    canaries: int = 0


@dataclass(frozen=True)
class Parts:
    """Rows of the pool that one replica has, disjoint."""

    members: Int[np.ndarray, " members"]
    nonmembers: Int[np.ndarray, " members"]
    validation: Int[np.ndarray, " validation"]


@dataclass(frozen=True)
class ImageDataset:
    """A dataset as every later step sees it.

    Attributes:
        name: Name in the configuration.
        classes: Name of each class. A label is an index into it.
        pool: Private records, from which each replica draws members, non-members and validation records: all
            three come from one law.
        test: Records for accuracy alone, of the original test split if there is one.
        aux: Records that the attacker owns, disjoint from both.
        drawing: Rule by which replicas draw from the pool.
        secret: Random text that hashes of the records are made with, so that nobody can try candidates for a
            record by them. Empty for records that are public, whose hashes are to be compared.
        label_nats: Most that a label of the pool, a randomized response, reveals about the true one. None if the
            labels are the true ones.
    """

    name: str
    classes: tuple[str, ...]
    pool: Split
    test: Split
    aux: Split
    drawing: Drawing
    secret: str = field(default="", repr=False)
    label_nats: float | None = None

    @property
    def colors(self) -> int:
        """Planes of an image: 1 or 3."""
        return self.pool.images.shape[1]

    @property
    def side(self) -> int | tuple[int, int]:
        """Pixels of a row and of a column of an image; both numbers where they differ, as those of tables do."""
        height, width = self.pool.images.shape[2:]
        return height if height == width else (height, width)

    def parts(self, replica: int) -> Parts:
        """Rows of the pool that a replica has; they depend on seed, name and replica, not on how many there are.

        Canaries are the last of the members and of the non-members.
        """
        parts = self._drawn(replica)
        canaries = self.canaries(replica)
        ordinary = self.drawing.members - len(canaries.rows)
        return replace(
            parts,
            members=np.concatenate([parts.members[:ordinary], canaries.members]),
            nonmembers=np.concatenate([parts.nonmembers[:ordinary], canaries.nonmembers]),
        )

    def canaries(self, replica: int) -> Canaries:
        """Pairs of canaries of a replica: a member and a non-member as drawn, which a fair coin then exchanges."""
        rule = self.drawing
        parts = self._drawn(replica)
        last = slice(rule.members - rule.canaries, None)
        rows = np.stack([parts.members[last], parts.nonmembers[last]], axis=1)
        generator = numpy_generator(rule.seed, "datasets", self.name, "replica", replica, "canaries")
        return Canaries(rows, self.wrong_labels(replica)[rows], generator.integers(0, 2, rule.canaries))

    def wrong_labels(self, replica: int) -> Int[np.ndarray, " pool"]:
        """Label that each record of the pool would have as a canary of a replica."""
        words = ("datasets", self.name, "replica", replica, "wrong_labels")
        return wrong_labels(self.pool.labels, len(self.classes), numpy_generator(self.drawing.seed, *words))

    def labels(self, replica: int) -> Int[np.ndarray, " pool"]:
        """Labels of the pool as a replica has them: wrong ones for both canaries of each pair."""
        canaries = self.canaries(replica)
        labels = self.pool.labels.copy()
        labels[canaries.rows] = canaries.labels
        return labels

    def _drawn(self, replica: int) -> Parts:
        """Rows of the pool that a replica would have without canaries."""
        rule = self.drawing
        generator = numpy_generator(rule.seed, "datasets", self.name, "replica", replica)
        count = len(self.pool)
        order = (
            stratified_order(self.pool.labels, generator) if rule.stratified else generator.permutation(count)
        )
        members, nonmembers, rest = np.split(order, [rule.members, 2 * rule.members])
        return Parts(
            *(generator.permutation(rows) for rows in (members, nonmembers, rest[: rule.validation]))
        )

    def members(self, replica: int) -> Split:
        """Records that a replica trains on, canaries with their wrong labels among them."""
        return self._labelled(replica, self.parts(replica).members)

    def nonmembers(self, replica: int) -> Split:
        """As many others of the pool, which attackers on membership are to distinguish from the members."""
        return self._labelled(replica, self.parts(replica).nonmembers)

    def _labelled(self, replica: int, rows: Int[np.ndarray, " k"]) -> Split:
        """Some records of the pool with the labels that a replica has."""
        return Split(self.pool.images[rows], self.labels(replica)[rows])

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays for storage: ``pool_images``, ``pool_labels``, ``test_images`` and so on."""
        return {
            f"{name}_{field}": getattr(getattr(self, name), field) for name in _SPLITS for field in _FIELDS
        }

    @classmethod
    def from_arrays(
        cls,
        name: str,
        classes: tuple[str, ...],
        arrays: Mapping[str, np.ndarray],
        drawing: Drawing,
        secret: str = "",
        label_nats: float | None = None,
    ) -> ImageDataset:
        """The dataset whose :meth:`arrays` were stored.

        Raises:
            DatasetError: If an array is missing, or they do not fit each other or the drawing.
        """
        if missing := [
            key for split in _SPLITS for field in _FIELDS if (key := f"{split}_{field}") not in arrays
        ]:
            raise DatasetError(f"{name}: stored arrays lack {', '.join(missing)}. Prepare the dataset again.")
        shape = arrays["pool_images"].shape[1:]
        splits = {}
        for split in _SPLITS:
            images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
            if (images.dtype, images.shape[1:], len(shape)) != (np.float32, shape, 3):
                raise DatasetError(
                    f"{name}: stored {split} images are {images.dtype} of shape {images.shape}."
                )
            if (labels.dtype, labels.shape) != (np.int64, images.shape[:1]) or not len(labels):
                raise DatasetError(
                    f"{name}: stored {split} labels are {labels.dtype} of shape {labels.shape}."
                )
            if not 0 <= labels.min() <= labels.max() < len(classes):
                raise DatasetError(f"{name}: stored {split} labels are not those of {len(classes)} classes.")
            splits[split] = Split(images, labels)
        least = 2 * drawing.members + drawing.validation
        held = len(splits["pool"])
        if drawing.members < 1 or drawing.validation < 1 or least > held:
            raise DatasetError(f"{name}: a replica draws {least} records of a stored pool of {held}.")
        if (problem := canary_problem(drawing.canaries, drawing.members, len(classes))) is not None:
            raise DatasetError(f"{name}: {problem}")
        return cls(name, tuple(classes), **splits, drawing=drawing, secret=secret, label_nats=label_nats)

    def content_hash(self) -> str:
        """SHA-256 of the secret, all images and labels and the drawing, independent of how they are stored."""
        return arrays_hash(
            {**self.arrays(), "drawing": np.array([*asdict(self.drawing).values()])}, self.secret
        )


@dataclass(frozen=True)
class Draw:
    """Rows of the original splits that a dataset consists of.

    Attributes:
        pool: Rows of the original training split that replicas draw from.
        aux: Rows of the original training split that become the attacker's.
        test: Rows of the original test split; of all if there is no original test split.
        drawing: Sizes of what a replica draws.
    """

    pool: Int[np.ndarray, " pool"]
    aux: Int[np.ndarray, " aux"]
    test: Int[np.ndarray, " test"]
    drawing: Drawing


def prepare(name: str, config: DatasetConfig, seed: int, *, stratified: bool = True) -> ImageDataset:
    """Read a dataset and draw its disjoint splits; only the images drawn are decoded.

    Args:
        name: Name of the dataset in the configuration, and of its reader unless ``config.reader`` names
            another.
        config: Sizes of the splits and where the images come from.
        seed: Seed of the configuration. Equal arguments give equal bytes.
        stratified: Whether a split's classes are in proportion to the original split's. Then the label of one
            record decides who many of the others are, while bounds are for records that differ by one: not
            for secret ones.

    Returns:
        Images of ``config.side`` × ``config.side`` pixels on the scale [-1, 1]; records of tables, arrays and
        time series (n, 1, rows, columns) on the same scale, standardized by the attacker's records.

    Raises:
        UnknownNameError: If there is no such reader.
        DatasetError: If the source is missing or damaged, or has fewer images than are asked for.
        TooLargeError: If they would take more memory than is allowed.

    Example:
        >>> from leakbound.config.data import DatasetConfig
        >>> images = prepare("digits", DatasetConfig(members=100, test=50, aux=200, side=8), seed=0)
        >>> images.members(replica=0).images.shape
        (100, 1, 8, 8)
    """
    from leakbound.datasets.pixels import resized
    from leakbound.datasets.tabular import scaling

    raw = DATASETS.get(config.reader or name)(name, config)
    if not isinstance(raw, RawDataset):
        raise DatasetError(
            f"datasets.{name}: its reader returned a {type(raw).__name__}, no leakbound.datasets.records.RawDataset"
        )
    for records in filter(None, (raw.train, raw.test)):
        checked_labels(records.labels, classes=len(raw.classes), column="label", origin=records.origin)
    drawn = draw(name, raw, config, seed, stratified=stratified)
    held = raw.test if raw.test is not None else raw.train

    if raw.columns:
        scaled = scaling(raw, drawn.aux, config.standardize)
        pool, test, aux = (
            Split(scaled(records, rows), records.labels[rows])
            for records, rows in ((raw.train, drawn.pool), (held, drawn.test), (raw.train, drawn.aux))
        )
        return ImageDataset(name, raw.classes, pool, test, aux, drawn.drawing)

    def split(records: Records, rows: np.ndarray) -> Split:
        first = checked_pixels(records.decode(rows[:1]), records.origin).shape[1:]
        side = config.side
        size = side * side * first[2]
        limits.check_limit(
            records.origin, "bytes of prepared images to give", 4 * size * len(rows), limits.ARRAYS // 2
        )
        images = np.empty((len(rows), first[2], side, side), np.float32)
        step = min(max(_CHUNK // (first[0] * first[1]), 1), _MOST_AT_ONCE)
        for start in range(0, len(rows), step):
            decoded = records.like(int(rows[0]), rows[start : start + step])
            images[start : start + step] = resized(checked_pixels(decoded, records.origin), side)
        if -1 < images.max() < 1.01 / 127.5 - 1:
            raise DatasetError(
                f"{records.origin}: no pixel is above 1, but they are on the scale 0 to 255. Multiply them by 255."
            )
        return Split(images, records.labels[rows])

    pool, test, aux = split(raw.train, drawn.pool), split(held, drawn.test), split(raw.train, drawn.aux)
    colors, others = pool.images.shape[1], test.images.shape[1]
    if others != colors:
        raise DatasetError(
            f"{held.origin}: images have {others} color planes, those of {raw.train.origin} have {colors}. "
            "Convert one of them."
        )
    return ImageDataset(name, raw.classes, pool, test, aux, drawn.drawing)


def draw(name: str, raw: RawDataset, config: DatasetConfig, seed: int, *, stratified: bool = True) -> Draw:
    """Choose the rows of each split.

    Each original split is put into one random order; if it is stratified, every beginning and every end has
    its classes in proportion. The pool is its beginning and the attacker's records its end, so other sizes
    change which records are drawn as little as possible. Without an original test split, the test records are
    drawn first: as many as asked for, or a fifth of all.

    Raises:
        DatasetError: If more records are asked for than there are.
    """
    held = raw.test if raw.test is not None else raw.train
    whole = len(held) if raw.test is not None else round(_POOL_TEST_FRACTION * len(held))
    count = config.test if config.test is not None else whole
    if count > len(held):
        raise DatasetError(
            f"datasets.{name}.test = {count}: {held.origin} has only {len(held)} images to draw from. Ask for fewer."
        )
    generator = numpy_generator(seed, "datasets", name, "test")
    order = stratified_order(held.labels, generator) if stratified else generator.permutation(len(held))
    test = generator.permutation(order[:count])
    rows = np.arange(len(raw.train)) if raw.test is not None else np.sort(order[count:])

    sizes = config.sizes(len(rows))
    if sizes.pool + sizes.aux > len(rows):
        raise DatasetError(
            f"datasets.{name}: pool = {sizes.pool} and aux = {sizes.aux} are to be disjoint, but {raw.train.origin} "
            f"has only {len(rows)} images to draw both from. Ask for fewer."
        )
    if sizes.members < 1 or sizes.drawn > sizes.pool:
        raise DatasetError(
            f"datasets.{name}: a replica draws members = {sizes.members}, as many non-members and validation = "
            f"{sizes.validation} from a pool of {sizes.pool}; in addition to aux = {sizes.aux}, "
            f"{raw.train.origin} has only {len(rows)} images. Ask for fewer members or a smaller aux."
        )
    if (problem := canary_problem(config.canaries, sizes.members, len(raw.classes))) is not None:
        raise DatasetError(f"datasets.{name}.{problem}")
    generator = numpy_generator(seed, "datasets", name, "train")
    order = (
        rows[stratified_order(raw.train.labels[rows], generator)]
        if stratified
        else generator.permutation(rows)
    )
    pool, aux = (
        generator.permutation(part) for part in (order[: sizes.pool], order[len(rows) - sizes.aux :])
    )
    return Draw(pool, aux, test, Drawing(sizes.members, sizes.validation, seed, stratified, config.canaries))


def stratified_order(labels: Int[np.ndarray, " n"], generator: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Random order of records in which classes are spread evenly.

    A class with n_c records has its j-th one (in random order) at position (j + u_c)/n_c of [0, 1), u_c
    uniform in [0, 1). Records are equally likely at every position; equally frequent classes alternate, so
    that a beginning that is a multiple of their number holds each equally often.
    """
    positions = np.empty(len(labels))
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        positions[rows] = (np.arange(len(rows)) + generator.random()) / len(rows)
    return np.argsort(positions, kind="stable")


def reference_dataset(dataset: ImageDataset) -> ImageDataset:
    """The same records, of which replica k is what reference network k is trained on, all with their true labels.

    Draws depend on the seed, the dataset and k, and share no generator with those of any replica.
    """
    drawing = dataset.drawing
    seed = derive_seed(drawing.seed, "reference")
    return replace(dataset, drawing=replace(drawing, seed=seed, canaries=0))
