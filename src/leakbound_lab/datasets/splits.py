"""Splits of a dataset: private pool, auxiliary records, test records, and the part of each replica."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from leakbound.randomness.seeding import derive_seed, numpy_generator
from leakbound.records.records import DatasetError, Records, checked_labels, first_copies
from leakbound.storage import arrays_hash, limits
from leakbound_lab.config.attacks import MOST_REFERENCES
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets.canaries import Canaries, canary_problem, wrong_labels
from leakbound_lab.datasets.records import RawDataset, check_pixels, gather_copies, gather_owners, join_groups
from leakbound_lab.registries import DATASETS

_SPLITS = ("pool", "test", "aux")
_FIELDS = ("images", "labels")
_POOL_TEST_FRACTION = 0.2
# Pixels that are decoded at once, because they are held in memory as floats until they are resized.
_CHUNK = 2**24
_MOST_AT_ONCE = 256  # images that are decoded at once
logger = logging.getLogger("leakbound")


@dataclass(frozen=True)
class Split:
    """Prepared images or other records (n, 1, rows, columns), float32 in [-1, 1], and their classes, int64."""

    images: Float[np.ndarray, "n colors height width"]
    labels: Int[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Int[np.ndarray, " k"]) -> "Split":
        """Copy some of the records."""
        return Split(self.images[rows], self.labels[rows])


@dataclass(frozen=True)
class Drawing:
    """Rule by which each replica draws its records from the private pool.

    Attributes:
        members: Records that a replica trains on. It has as many non-members.
        validation: Records on which its learning rate and stopping time are chosen.
        seed: Seed of the configuration.
        stratified: Whether each part has the same class proportions as the pool.
        canaries: Pairs of records with wrong labels. One of each pair is a member and the other a non-member.
    """

    members: int
    validation: int
    seed: int
    stratified: bool = True
    canaries: int = 0


@dataclass(frozen=True)
class Parts:
    """Disjoint rows of the pool that one replica uses."""

    members: Int[np.ndarray, " members"]
    nonmembers: Int[np.ndarray, " members"]
    validation: Int[np.ndarray, " validation"]


class Most(NamedTuple):
    """Most rows, different records, and different pairs of a record and a label that one unit of a dataset has."""

    rows: int
    records: int
    labels: int


@dataclass(frozen=True)
class ImageDataset:
    """A prepared dataset, as all later steps use it.

    Attributes:
        name: Name in the configuration.
        classes: Name of each class. A label is an index into it.
        pool: Private records, from which each replica draws members, non-members and validation records. All
            three have one distribution.
        test: Records for accuracy alone, of the original test split if there is one.
        aux: Records that the attacker owns, disjoint from both.
        drawing: Rule by which replicas draw from the pool.
        secret: Random text that is hashed with the records, so that nobody can test guesses of a record
            against a hash. Empty for public records, whose hashes are meant to be compared.
        label_nats: Most nats that a label of the pool, a randomized response, reveals about the true label.
            None for true labels.
        copies: First of the equal records of the pool, for each of its rows. All of them are in the same part
            of a replica. None if no two records of the pool are equal.
        owners: First of the records of the same owner, for each row of the pool, so likewise. Records that equal
            one of another owner are of the same. None without owners.
        scale: Of a table, ``columns``, ``mean`` and ``factor`` of each value: records are (value − mean) ·
            factor in its units, clipped. Empty for images.
    """

    name: str
    classes: tuple[str, ...]
    pool: Split
    test: Split
    aux: Split
    drawing: Drawing
    secret: str = field(default="", repr=False)
    label_nats: float | None = None
    copies: Int[np.ndarray, " pool"] | None = None
    owners: Int[np.ndarray, " pool"] | None = None
    scale: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    _draws: dict[int, Parts] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def colors(self) -> int:
        """Planes of an image: 1 or 3."""
        return self.pool.images.shape[1]

    @property
    def side(self) -> int | tuple[int, int]:
        """Pixels of a row and of a column of an image, or both numbers if they differ, as for tables."""
        height, width = self.pool.images.shape[2:]
        return height if height == width else (height, width)

    @property
    def unit(self) -> Literal["record", "owner"]:
        """Whose uses bounds count: a record with its copies, or all records of an owner."""
        return "record" if self.owners is None else "owner"

    @property
    def units(self) -> Int[np.ndarray, " pool"]:
        """Number of each row's unit, the first of its rows."""
        groups = self.copies if self.owners is None else self.owners
        return np.arange(len(self.pool)) if groups is None else groups

    @property
    def most(self) -> "Most":
        """Most rows, different records and different labelled records that one unit has in the pool."""
        if self.copies is None and self.owners is None:
            return Most(1, 1, 1)
        units = self.units
        records = np.arange(len(self.pool)) if self.copies is None else self.copies
        labelled = np.stack([units, records, self.pool.labels], axis=1)
        counts = (units, np.unique(labelled[:, :2], axis=0)[:, 0], np.unique(labelled, axis=0)[:, 0])
        return Most(*(int(np.bincount(of_units).max(initial=1)) for of_units in counts))

    def parts(self, replica: int) -> Parts:
        """Draw the rows of the pool that a replica uses.

        They depend on seed, name and replica, but not on the number of replicas. Canaries are the last of the
        members and of the non-members.
        """
        parts = self._cached_parts(replica)
        if not self.drawing.canaries:
            return parts
        canaries = self.canaries(replica)
        ordinary = self.drawing.members - len(canaries.rows)
        return replace(
            parts,
            members=np.concatenate([parts.members[:ordinary], canaries.members]),
            nonmembers=np.concatenate([parts.nonmembers[:ordinary], canaries.nonmembers]),
        )

    def canaries(self, replica: int) -> Canaries:
        """Draw the canaries of a replica: pairs of a member and a non-member, which a fair coin may exchange."""
        rule = self.drawing
        parts = self._cached_parts(replica)
        last = slice(rule.members - rule.canaries, None)
        rows = np.stack([parts.members[last], parts.nonmembers[last]], axis=1)
        generator = numpy_generator(rule.seed, "datasets", self.name, "replica", replica, "canaries")
        return Canaries(rows, self.wrong_labels(replica)[rows], generator.integers(0, 2, rule.canaries))

    def wrong_labels(self, replica: int) -> Int[np.ndarray, " pool"]:
        """Draw the label that each record of the pool would have as a canary of a replica."""
        words = ("datasets", self.name, "replica", replica, "wrong_labels")
        return wrong_labels(self.pool.labels, len(self.classes), numpy_generator(self.drawing.seed, *words))

    def labels(self, replica: int) -> Int[np.ndarray, " pool"]:
        """Return the labels of the pool for a replica, with wrong ones for both canaries of each pair."""
        labels = self.pool.labels.copy()
        if self.drawing.canaries:
            canaries = self.canaries(replica)
            labels[canaries.rows] = canaries.labels
        return labels

    def _cached_parts(self, replica: int) -> Parts:
        """Return the rows of the pool that a replica would use without canaries, drawn at the first call."""
        if replica not in self._draws:
            self._draws[replica] = self._draw_parts(replica)
        return self._draws[replica]

    def _draw_parts(self, replica: int) -> Parts:
        """Draw the rows of the pool that a replica would use without canaries."""
        rule = self.drawing
        generator = numpy_generator(rule.seed, "datasets", self.name, "replica", replica)
        order = (
            stratified_order(self.pool.labels, generator)
            if rule.stratified
            else generator.permutation(len(self.pool))
        )
        parts = np.split(order, [rule.members, 2 * rule.members])
        if self.owners is not None:
            # Records that are beyond all parts may be left over of an owner.
            parts = [*parts[:2], parts[2][: rule.validation], parts[2][rule.validation :]]
            parts, _ = gather_owners(parts[:3], parts[3], self.owners, self.name)
        elif self.copies is not None:
            parts = gather_copies(parts, self.copies, self.pool.labels * rule.stratified, self.name)
        members, nonmembers, rest = parts
        return Parts(
            *(generator.permutation(rows) for rows in (members, nonmembers, rest[: rule.validation]))
        )

    def members(self, replica: int) -> Split:
        """Return the records that a replica trains on, including canaries with their wrong labels."""
        return self._labelled(replica, self.parts(replica).members)

    def nonmembers(self, replica: int) -> Split:
        """Return as many non-members, from which membership inference must distinguish the members."""
        return self._labelled(replica, self.parts(replica).nonmembers)

    def _labelled(self, replica: int, rows: Int[np.ndarray, " k"]) -> Split:
        """Return some records of the pool with the labels of a replica."""
        return Split(self.pool.images[rows], self.labels(replica)[rows])

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays for storage: ``pool_images``, ``test_labels`` and so on, and copies if any."""
        arrays = {
            f"{name}_{field}": getattr(getattr(self, name), field) for name in _SPLITS for field in _FIELDS
        }
        groups = {"pool_copies": self.copies, "pool_owners": self.owners}
        return arrays | {name: rows for name, rows in groups.items() if rows is not None}

    @classmethod
    def from_arrays(
        cls,
        name: str,
        classes: tuple[str, ...],
        arrays: Mapping[str, np.ndarray],
        drawing: Drawing,
        **facts: Any,
    ) -> "ImageDataset":
        """Make the dataset whose :meth:`arrays` were stored.

        Args:
            name: Name in the configuration.
            classes: Name of each class.
            arrays: Arrays of :meth:`arrays`.
            drawing: Rule by which replicas draw from the pool.
            facts: Other attributes.

        Raises:
            KeyError: If an array is missing.
        """
        pool, test, aux = (Split(*(arrays[f"{split}_{field}"] for field in _FIELDS)) for split in _SPLITS)
        facts |= {"copies": arrays.get("pool_copies"), "owners": arrays.get("pool_owners")}
        return cls(name, classes, pool, test, aux, drawing, **facts)

    def content_hash(self) -> str:
        """Compute SHA-256 of secret, images, labels and drawing, independent of how they are stored."""
        return arrays_hash(
            {**self.arrays(), "drawing": np.array([*asdict(self.drawing).values()])}, self.secret
        )


@dataclass(frozen=True)
class Draw:
    """Rows of the original splits that a dataset consists of.

    Attributes:
        pool: Rows of the original training split that replicas draw from.
        aux: Rows of the original training split that become the attacker's.
        test: Rows of the original test split, or of all records if there is none.
        drawing: Rule by which replicas draw from the pool.
        unused: Rows of the original training split that are in none of these.
    """

    pool: Int[np.ndarray, " pool"]
    aux: Int[np.ndarray, " aux"]
    test: Int[np.ndarray, " test"]
    drawing: Drawing
    unused: Int[np.ndarray, " unused"]


def prepare(name: str, config: DatasetConfig, seed: int, *, stratified: bool = True) -> ImageDataset:
    """Read a dataset and draw its disjoint splits. Only the images drawn are decoded.

    Args:
        name: Name of the dataset in the configuration, and of its reader unless ``config.reader`` names
            another.
        config: Sizes of the splits and source of the images.
        seed: Seed of the configuration. Equal arguments give equal bytes.
        stratified: Whether the splits have the class proportions of the original split. The label of one
            record then influences which other records are drawn, but bounds compare datasets that differ in
            one record. So do not stratify secret records.

    Returns:
        Images of ``config.side`` × ``config.side`` pixels on the scale [-1, 1]. Records of tables, arrays and
        time series (n, 1, rows, columns) are on the same scale, standardized by the attacker's records.

    Raises:
        UnknownNameError: If there is no such reader.
        DatasetError: If the source is missing or damaged, or has too few images.
        TooLargeError: If they would take more memory than is allowed.

    Example:
        >>> from leakbound_lab.config.data import DatasetConfig
        >>> images = prepare("digits", DatasetConfig(members=100, test=50, aux=200, side=8), seed=0)
        >>> images.members(replica=0).images.shape
        (100, 1, 8, 8)
    """
    from leakbound_lab.datasets.tabular import scaling

    # Description and labels of all records, from which none is decoded yet.
    raw = _read(name, config)
    test_source = raw.test if raw.test is not None else raw.train

    def values_of(records: Records, rows: np.ndarray) -> np.ndarray:
        return _decode(records, rows, None if raw.columns else config.side)

    def parts_of(draw: Draw) -> list[Split]:
        sources = ((raw.train, draw.pool), (raw.train, draw.aux), (test_source, draw.test))
        return [Split(values_of(records, rows), records.labels[rows]) for records, rows in sources]

    # The records that are drawn. Equal ones must not lie on both sides, so some draws are made again.
    first = draw(name, raw, config, seed, stratified=stratified)
    parts = parts_of(first)
    compared = [part.images for part in parts]
    if raw.owners is not None:  # parts may take some of the records that were not drawn
        compared.append(values_of(raw.train, first.unused))
    final, copies, owners = _keep_groups_whole(name, raw, first, first_copies(*compared))
    pool, aux, test = parts if final is first else parts_of(final)
    # Values of tables on the scale of images, by moments of the attacker's records.
    scale: dict[str, Sequence[Any]] = {}
    if raw.columns:
        mean, factor = scaling(raw, [pool.images, test.images, aux.images], config.standardize)
        pool, aux, test = (
            replace(part, images=np.clip((part.images - mean) * factor, -1, 1).astype(np.float32))
            for part in (pool, aux, test)
        )
        scale = {"columns": raw.columns, "mean": mean.ravel().tolist(), "factor": factor.ravel().tolist()}
    colors, others = (split.images.shape[1] for split in (pool, test))
    if others != colors:
        raise DatasetError(
            f"{test_source.origin}: images have {others} color planes, those of {raw.train.origin} have {colors}. "
            "Convert one of them."
        )
    groups: dict[str, Any] = {"copies": copies, "owners": owners}
    return ImageDataset(name, raw.classes, pool, test, aux, final.drawing, **groups, scale=scale)


def _read(name: str, config: DatasetConfig) -> RawDataset:
    """Return the original records of a dataset by its reader, with labels and owners that were checked."""
    raw = DATASETS.get(config.reader or name)(name, config)
    if not isinstance(raw, RawDataset):
        raise DatasetError(
            f"datasets.{name}: its reader returned a {type(raw).__name__}, no leakbound_lab.datasets.records.RawDataset"
        )
    if config.owner is not None and raw.owners is None:
        raise DatasetError(
            f"datasets.{name}.owner = {config.owner!r}: its reader does not say whose a record is; leave owner out, "
            "and records are taken as independent of each other"
        )
    for records in filter(None, (raw.train, raw.test)):
        checked_labels(records.labels, classes=len(raw.classes), column="label", origin=records.origin)
    return raw


def _decode(records: Records, rows: Int[np.ndarray, " k"], side: int | None) -> np.ndarray:
    """Decode some records: images on the scale [-1, 1], or other values in their own units.

    Args:
        records: Original records.
        rows: Those to decode.
        side: Pixels of a side that images are resized to. None for values that are no images.
    """
    from leakbound_lab.datasets.pixels import resize

    records.check_order(rows)
    if side is None:
        return records.decode(rows)[:, None]
    height, width, colors = check_pixels(records.decode(rows[:1]), records.origin).shape[1:]
    limits.check_limit(
        records.origin,
        "bytes of prepared images to give",
        4 * side * side * colors * len(rows),
        limits.ARRAYS // 2,
    )
    images = np.empty((len(rows), colors, side, side), np.float32)
    step = min(max(_CHUNK // (height * width), 1), _MOST_AT_ONCE)
    for start in range(0, len(rows), step):
        decoded = records.like(int(rows[0]), rows[start : start + step])
        images[start : start + step] = resize(check_pixels(decoded, records.origin), side)
    if -1 < images.max() < 1.01 / 127.5 - 1:
        raise DatasetError(
            f"{records.origin}: no pixel is above 1, but they are on the scale 0 to 255. Multiply them by 255."
        )
    return images


def _keep_groups_whole(
    name: str, raw: RawDataset, drawn: Draw, first: Int[np.ndarray, " n"]
) -> tuple[Draw, Int[np.ndarray, " pool"] | None, Int[np.ndarray, " pool"] | None]:
    """Return the draw with copies of a record, and records of an owner, in one part, and copies and owners of the pool.

    Copies of training records, and records of their owners, are left out of an original test split. ``first`` is the
    first of the equal records, for each row of pool, attacker's, test and, with owners, unused records, in this order.
    """
    copied = int((first != np.arange(len(first))).sum())
    if not copied and raw.owners is None:
        return drawn, None, None
    parts = [drawn.pool, drawn.aux, *([drawn.test] if raw.test is None else [])]
    rows = np.concatenate(parts if raw.owners is None else [*parts, drawn.unused])
    same = np.arange(len(raw.train))
    same[rows] = rows[first[: len(rows)]]
    groups = same if raw.owners is None else join_groups(same, raw.owners)
    labels = raw.train.labels * drawn.drawing.stratified
    if raw.owners is None:
        pool, aux, *test = gather_copies(parts, groups, labels, raw.train.origin)
    else:
        (pool, aux, *test), _ = gather_owners(parts, drawn.unused, groups, raw.train.origin)
    test_rows = test[0] if test else drawn.test[first[len(rows) :] >= len(rows)]
    if not test and raw.owners is not None and raw.test_owners is not None:
        test_rows = test_rows[~np.isin(raw.test_owners[test_rows], raw.owners)]
    if not len(test_rows):
        origin = (raw.test or raw.train).origin
        whose = "copies of records" if raw.owners is None else "copies of records, or of owners,"
        raise DatasetError(f"{origin}: all test records are {whose} of {raw.train.origin}. Give others.")
    _log_groups(name, copied, len(first), len(drawn.test) - len(test_rows))
    copies = _first_rows(same[pool])
    owners = None if raw.owners is None else _first_rows(groups[pool])
    if raw.owners is not None and owners is None:
        owners = np.arange(len(pool))
    return replace(drawn, pool=pool, aux=aux, test=test_rows), copies, owners


def _log_groups(name: str, copied: int, records: int, left_out: int) -> None:
    """Write to the log how many records are copies of others, and how many test records are left out."""
    if copied:
        logger.info(
            "datasets.%s: %d of %d records are copies of others. All copies of a record are in one part, also of "
            "each replica's; %d test records were left out.",
            *(name, copied, records, left_out),
        )
    elif left_out:
        logger.info(
            "datasets.%s: %d test records were left out, whose owners have training records.",
            *(name, left_out),
        )


def _first_rows(groups: Int[np.ndarray, " pool"]) -> Int[np.ndarray, " pool"] | None:
    """Return the first row of each row's group, None if no two rows share one."""
    _, places, which = np.unique(groups, return_index=True, return_inverse=True)
    return places[which] if len(places) < len(groups) else None


def draw(name: str, raw: RawDataset, config: DatasetConfig, seed: int, *, stratified: bool = True) -> Draw:
    """Choose the rows of each split.

    Each original split is put into one random order. If stratified, every beginning and every end of it has
    the class proportions of the whole. The pool is its beginning and the attacker's records its end, so that
    other sizes change the records drawn as little as possible. Without an original test split, the test
    records are drawn first, by default a fifth of all.

    Raises:
        DatasetError: If there are fewer records than requested.
    """
    # Test records: of the original test split, or the first of the only one.
    source = raw.test if raw.test is not None else raw.train
    whole = len(source) if raw.test is not None else round(_POOL_TEST_FRACTION * len(source))
    count = config.test if config.test is not None else whole
    if count > len(source):
        raise DatasetError(
            f"datasets.{name}.test = {count}: {source.origin} has only {len(source)} images to draw from. "
            "Ask for fewer."
        )
    generator = numpy_generator(seed, "datasets", name, "test")
    order = stratified_order(source.labels, generator) if stratified else generator.permutation(len(source))
    test = generator.permutation(order[:count])
    rows = np.arange(len(raw.train)) if raw.test is not None else np.sort(order[count:])

    # Sizes of pool and aux, which the rest must hold.
    sizes = config.sizes(len(rows))
    if raw.owners is not None:  # whole owners do not fill parts to the last record
        spare = 3 * (int(np.bincount(raw.owners).max()) - 1)
        fewer = config.sizes(max(len(rows) - 2 * spare, 0))
        sizes = replace(
            config.sizes(max(len(rows) - spare, 0)), members=fewer.members, validation=fewer.validation
        )
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
    # Both ends of one random order, so that other sizes change the records as little as possible.
    generator = numpy_generator(seed, "datasets", name, "train")
    order = (
        rows[stratified_order(raw.train.labels[rows], generator)]
        if stratified
        else generator.permutation(rows)
    )
    pool, aux = (
        generator.permutation(part) for part in (order[: sizes.pool], order[len(rows) - sizes.aux :])
    )
    drawing = Drawing(sizes.members, sizes.validation, seed, stratified, config.canaries)
    return Draw(pool, aux, test, drawing, order[sizes.pool : len(rows) - sizes.aux])


def stratified_order(labels: Int[np.ndarray, " n"], generator: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Draw a random order of records in which classes are spread evenly.

    The j-th record (in random order) of a class with n_c records has the position (j + u_c)/n_c in [0, 1),
    with u_c uniform in [0, 1). Every record is equally likely at every position. Equally frequent classes
    alternate, so a beginning whose length is a multiple of their number holds each of them equally often.
    """
    positions = np.empty(len(labels))
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        positions[rows] = (np.arange(len(rows)) + generator.random()) / len(rows)
    return np.argsort(positions, kind="stable")


def reference_dataset(dataset: ImageDataset, *, of_candidates: bool = False) -> ImageDataset:
    """Return the same records with other draws: replica k has the members of reference network k, with true labels.

    Draws depend on the seed, the dataset and k, and share no generator with those of any replica.

    Args:
        dataset: Records, and the rule by which replicas draw from them.
        of_candidates: Whether reference k is trained on a random half of the candidates of replica
            k // MOST_REFERENCES, its members and non-members, and not on a draw from the pool.
    """
    if of_candidates:
        facts = {each.name: getattr(dataset, each.name) for each in fields(dataset) if each.init}
        return _CandidateHalves(**facts | {"drawing": replace(dataset.drawing, canaries=0)})
    seed = derive_seed(dataset.drawing.seed, "reference")
    return replace(dataset, drawing=replace(dataset.drawing, seed=seed, canaries=0))


class _CandidateHalves(ImageDataset):
    """A dataset whose replicas are reference networks, each with half of the candidates of its target.

    A target's references 2j and 2j + 1 share out its candidates, so that just one of both holds each of them.
    Who is a member does not influence the halves.
    """

    def _draw_parts(self, replica: int) -> Parts:
        """Draw half of the candidates, with the validation records of the target."""
        target, number = divmod(replica, MOST_REFERENCES)
        parts = super()._draw_parts(target)
        rows = np.sort(np.concatenate([parts.members, parts.nonmembers]))
        words = ("datasets", self.name, "replica", target, "candidate_halves", number // 2)
        generator = numpy_generator(self.drawing.seed, *words)
        labels = self.pool.labels * self.drawing.stratified
        halves = np.split(rows[stratified_order(labels[rows], generator)], 2)
        if self.copies is not None or self.owners is not None:
            halves = gather_copies(halves, self.units, labels, self.name)
        return Parts(halves[number % 2], halves[1 - number % 2], parts.validation)
