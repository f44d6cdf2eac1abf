"""Original records of a dataset, and parts of them that share neither equal records nor an owner's.

Pictures of records are shown on pages and in stores only if the reader of their dataset allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int, Shaped

from leakbound.records.records import DatasetError, Records
from leakbound.words import owner_text
from leakbound_lab.config.data import MOST_COLORS
from leakbound_lab.datasets.portrait import PORTRAIT
from leakbound_lab.registries import DATASETS

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RawDataset:
    """Original records as a reader returns them.

    Attributes:
        classes: Name of each class. A label is an index into it.
        train: Records of the original training split, or the whole pool if there is no original test split.
        test: Records of the original test split. If None, :func:`leakbound_lab.datasets.prepare` draws one from
            the pool.
        columns: Name of each value, if ``decode`` gives values (k, rows, columns) in their own units instead
            of pixels. They are standardized.
        owners: For each record of ``train``, a number that all records of one owner share. None if records
            are independent of each other.
        test_owners: The same for each record of ``test``. Those of owners who are in ``train``, too, are left out.
    """

    classes: tuple[str, ...]
    train: Records
    test: Records | None
    columns: tuple[str, ...] = field(default=(), kw_only=True)
    owners: Int[np.ndarray, " n"] | None = field(default=None, kw_only=True)
    test_owners: Int[np.ndarray, " t"] | None = field(default=None, kw_only=True)


def number_owners(*parts: Sequence[str]) -> list[Int[np.ndarray, " _"]]:
    """Number owners by their names, the same in all parts and for each form of a name.

    Example:
        >>> number_owners(["b", "a", "b"], ["a", "c"])
        [array([1, 0, 1]), array([0, 2])]
    """
    names = [owner_text(name) for part in parts for name in part]
    numbers = np.unique(np.asarray(names, dtype=str), return_inverse=True)[1].astype(np.int64)
    return np.split(numbers, np.cumsum([len(part) for part in parts])[:-1])


def may_be_published(reader: object) -> bool:
    """Return True if a registered reader states by ``publishable`` that its images may be published."""
    return bool(getattr(reader, "publishable", False))


def check_pixels(pixels: np.ndarray, origin: str) -> Shaped[np.ndarray, "k height width colors"]:
    """Check the shape and every value of decoded pixels, and return them.

    Args:
        pixels: Result of :attr:`Records.decode`, of any shape.
        origin: Origin of the records, for messages.

    Raises:
        DatasetError: If they are no images of one color or three, or a value is not in 0 to 255.
    """
    if pixels.ndim != 4 or pixels.shape[3] not in (1, MOST_COLORS):
        raise DatasetError(
            f"{origin}: decode returned an array of shape {pixels.shape}; pixels have the shape (k, height, width, "
            f"colors) with 1 or {MOST_COLORS} colors."
        )
    if not (pixels.min() >= 0 and pixels.max() <= 255):  # also refuses NaN
        raise DatasetError(
            f"{origin}: pixels are between {pixels.min()} and {pixels.max()}; they are numbers from 0 to 255."
        )
    return pixels


def join_groups(first: Int[np.ndarray, " n"], second: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Join two groupings of records: those that share a group of either, also through others, share one.

    Args:
        first: Number of each record's group.
        second: Number of each record's group in another grouping.

    Returns:
        Lowest index of the records that share a group.

    Example:
        >>> join_groups(np.array([0, 0, 2, 3, 4]), np.array([0, 1, 1, 3, 3]))
        array([0, 0, 0, 3, 3])
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    sides = [np.unique(groups, return_inverse=True)[1] for groups in (first, second)]
    count = sides[0].max(initial=-1) + 1
    links = coo_array(
        (np.ones(len(first)), (sides[0], count + sides[1])), shape=(2 * len(first), 2 * len(first))
    )
    _, parts = connected_components(links, directed=False)
    _, lowest, which = np.unique(parts[sides[0]], return_index=True, return_inverse=True)
    return np.asarray(lowest[which], dtype=np.int64)


def gather_copies(
    parts: Sequence[Int[np.ndarray, " _"]],
    copies: Int[np.ndarray, " n"],
    labels: Int[np.ndarray, " n"],
    origin: str,
) -> list[Int[np.ndarray, " _"]]:
    """Exchange as few records as possible so that all copies of a record are in one part.

    Copies go to the part of the one with the lowest number, if it has room, however many there are. Sizes of
    parts and all other places stay as they are.

    Args:
        parts: Rows of each part, all different, in random order.
        copies: For each row, a number that equal records share.
        labels: Class of each row. A record is exchanged for one of its class, if there is one.
        origin: Origin of the records, for messages.

    Raises:
        DatasetError: If so many records are copies that the parts cannot be filled.
    """
    order = np.concatenate(parts)
    part = np.repeat(np.arange(len(parts)), [*map(len, parts)])
    free = part.copy()  # part of each place, -1 where the record must stay
    numbers = np.bincount(copies[order])
    for record in sorted(np.flatnonzero(numbers > 1), key=lambda record: -int(numbers[record])):
        places = np.flatnonzero(copies[order] == record)
        homes = (part[places[np.argmin(order[places])]], *range(len(parts)))
        home = next((place for place in homes if np.sum(free == place) >= len(places)), None)
        if home is None:
            raise DatasetError(
                f"{origin}: a record is there {len(places)} times, and no part has room for all of its copies. Leave "
                "copies out first, e.g. by pandas' drop_duplicates."
            )
        free[places[part[places] == home]] = -1
        for place in places[part[places] != home]:
            room = np.flatnonzero(free == home)
            target = room[np.argmax(labels[order[room]] == labels[order[place]])]
            order[[place, target]] = order[[target, place]]
            free[target] = -1
    return np.split(order, np.cumsum([*map(len, parts)])[:-1])


def gather_owners(
    parts: Sequence[Int[np.ndarray, " _"]],
    unused: Int[np.ndarray, " _"],
    owners: Int[np.ndarray, " n"],
    origin: str,
) -> tuple[list[Int[np.ndarray, " _"]], Int[np.ndarray, " _"]]:
    """Fill parts so that no two of them hold records of one owner. Sizes stay, single records become unused.

    An owner goes to the part of its first record if that has room for all of its records, else to another. What
    is missing in a part at the end comes from an owner whose other records are not used.

    Args:
        parts: Rows of each part, all different, in random order.
        unused: Further rows that a part may take.
        owners: For each row, a number that records of one owner share.
        origin: Origin of the records, for messages.

    Returns:
        Rows of each part, and those that are in none.

    Raises:
        DatasetError: If there are too few unused records to fill the parts.
    """
    order = np.concatenate([*parts, unused])
    part = np.repeat(np.arange(len(parts) + 1), [*map(len, parts), len(unused)])
    _, starts, which = np.unique(owners[order], return_index=True, return_inverse=True)
    places_of = np.split(np.argsort(which, kind="stable"), np.cumsum(np.bincount(which))[:-1])
    room = [*map(len, parts)]
    filled: list[list[int]] = [[] for _ in parts]
    waiting: list[np.ndarray] = []
    for owner in np.argsort(starts, kind="stable"):
        places = places_of[owner]
        homes = (int(part[places[0]]), *range(len(parts)))
        home = next((home for home in homes if home < len(parts) and len(places) <= room[home]), None)
        if home is None or homes[0] == len(parts):
            waiting.append(places)
            continue
        filled[home] += places.tolist()
        room[home] -= len(places)
    spare: list[int] = []
    for home in range(len(parts)):
        while room[home] and waiting:
            whole = (number for number, places in enumerate(waiting) if len(places) <= room[home])
            places = waiting.pop(next(whole, 0))
            fitting = places[: room[home]]
            filled[home] += fitting.tolist()
            spare += places[room[home] :].tolist()
            room[home] -= len(fitting)
    if lacking := sum(room):
        raise DatasetError(
            f"{origin}: {lacking} records more are needed so that no owner is in two parts: owners have up to "
            f"{max(map(len, places_of))} records, and whole ones do not fill the parts. Ask for fewer records in some "
            "part."
        )
    rest = [place for places in waiting for place in places.tolist()]
    return [order[places] for places in filled], order[[*spare, *rest]]


def unpublishable(rows: pd.DataFrame, readers: Mapping[str, str]) -> list[str]:
    """List the datasets whose pictures are in the rows (metric ``pixel``) although they may not be published.

    Args:
        rows: Rows of a figure or table. Without a column ``dataset`` they may be from any dataset.
        readers: Dataset to the name of its reader. Pictures of other datasets are withheld, but for the portrait.
    """
    if "metric" not in rows or not (rows["metric"] == "pixel").any():
        return []
    pixels = rows[rows["metric"] == "pixel"]
    names = sorted(map(str, pixels["dataset"].unique())) if "dataset" in pixels else sorted(readers)
    return [
        name
        for name in names
        if (not may_be_published(DATASETS.get(readers[name])) if name in readers else name != PORTRAIT)
    ]
