"""Owners of the user's records: a column, an array of a file of arrays, or a part of the paths of pictures."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from leakbound.accounting.leakage import joint_information
from leakbound.channels.shapes import shape_named
from leakbound.commands.files import refusing
from leakbound.engine.targets import Capacity, Leakage, Reconstruction, Target
from leakbound.words import owner_text

if TYPE_CHECKING:
    from leakbound.commands.record_options import ReadingOptions
    from leakbound.records.collection import Collection


def without_owner_column(path: Path, reading: ReadingOptions) -> ReadingOptions:
    """Return how a file is read without a table's column of owners, which is no value of a record."""
    from leakbound.records.arrays import is_array_file
    from leakbound.records.tables import is_table

    if reading.owner is None or not is_table(path) or is_array_file(path):
        return reading
    return replace(reading, exclude=[*(reading.exclude or []), reading.owner])


def owners_of(private: Collection, owner: str) -> list[str]:
    """Return the owner of each record.

    Raises:
        BadParameter: If a record has none, or the form of the records names none.
    """
    names = private.names if private.kind == "folders" else None
    return owners_at(private.origin, owner, len(private), names, private.rows)


def owners_at(
    path: Path, owner: str, count: int, names: Sequence[str] | None = None, rows: np.ndarray | None = None
) -> list[str]:
    """Return the owner of each record of a file or folder, by one text for each.

    Args:
        path: The file or folder.
        owner: Column, name of an array, or pattern.
        count: Number of records.
        names: Paths of pictures below a folder. None for other records.
        rows: Row of the table that each record is. None if each row is one.

    Raises:
        BadParameter: If a record has none, or the form of the records names none.
    """
    return [owner_text(name) for name in _names_at(path, owner, count, names, rows)]


def _names_at(
    path: Path, owner: str, count: int, names: Sequence[str] | None, rows: np.ndarray | None
) -> Sequence[Any]:
    """Return the name of each record's owner as the file or folder holds it, with the errors of :func:`owners_at`."""
    from leakbound.records.arrays import is_array_file, read_owners
    from leakbound.records.class_folders import owners_of_paths
    from leakbound.records.records import DatasetError
    from leakbound.records.tables import owner_column

    if names is not None:
        with refusing("--owner", DatasetError):
            return owners_of_paths(path, names, owner)
    if is_array_file(path):
        if path.suffix.lower() not in (".npz", ".mat"):
            raise typer.BadParameter(
                f"--owner {owner}: {path} holds one array without a name; write records and owners into one file, by "
                f"numpy.savez('mine.npz', records=..., labels=..., {owner if owner.isidentifier() else 'owners'}=...)"
            )
        with refusing("--owner", DatasetError):
            return read_owners(path, owner, count)
    with refusing("--owner", DatasetError):
        column = owner_column(path, owner)
    if rows is not None:
        column = column.iloc[rows]
    if len(column) != count:
        raise typer.BadParameter(
            f"--owner {owner}: {path} has {len(column)} rows and {count} records; leave out the rows that "
            "are no records"
        )
    if column.isna().any():
        first = int(column.isna().to_numpy().argmax())
        row = first if rows is None else rows[first]
        raise typer.BadParameter(
            f"--owner {owner}: record {row} of {path} has none; give each record the name or number of whom it is about"
        )
    return column.tolist()


def one_of_each(owners: Sequence[str], seed: int) -> np.ndarray:
    """Draw one record of each owner, so that the drawn records are of different owners. Returns sorted rows."""
    rows = np.random.default_rng(seed).permutation(len(owners))
    return np.sort(rows[np.unique(np.asarray(owners)[rows], return_index=True)[1]])


def most_records(values: np.ndarray, owners: Sequence[str]) -> tuple[int, int]:
    """Count the releases that say something about an owner, where each record is released once, at most.

    Equal records of several owners are released for each of them.

    Returns:
        That number, and how often the most frequent record is released.
    """
    from leakbound.records.records import first_copies

    records = first_copies(values).tolist()
    times = Counter(records)
    of_owners = defaultdict(set)
    for record, owner in zip(records, owners, strict=True):
        of_owners[owner].add(record)
    most = max(sum(times[record] for record in of_owner) for of_owner in of_owners.values())
    return most, max(times.values())


def label_nats(private: Collection, most: int | None) -> float | None:
    """Bound the nats of the labels that are released of one record, or of one owner.

    Equal records are one, of which every different label counts.

    Args:
        private: The records.
        most: Releases of an owner, each with a label. None without owners.

    Returns:
        None if there are no labels.
    """
    from leakbound.records.records import first_copies

    if not private.classes or private.labels is None:
        return None
    if most is None:
        pairs = np.unique(np.stack([first_copies(private.values), private.labels], axis=1), axis=0)
        most = int(np.bincount(pairs[:, 0]).max())
    return most * math.log(len(private.classes))


def for_owners(
    target: Target, records: np.ndarray, shape: str, weights: Any, releases: tuple[int, int]
) -> Target:
    """Plan a target for all records of an owner together, whatever these have in common.

    Their nats are added, since they may be independent of each other, so each has its part of a total. Where equal
    records are released for several owners, one has more uses than planned. As many are then allowed as reach the
    total if they were of one record, or, where nats of a copy are limited, as all planned copies are of it.

    Args:
        target: Target of the calibration.
        records: (n, ...), those that the noise is calibrated to.
        shape: Shape of the noise.
        weights: Relative noise variances, for the shape ``personalized``.
        releases: Result of :func:`most_records`.

    Raises:
        BadParameter: If it is an error of reconstruction.
    """
    from scipy.optimize import brentq  # slow import

    uses = target.uses or 1
    most, times = releases
    if most == 1:
        return target
    if isinstance(target, Reconstruction):
        raise typer.BadParameter(
            "--target-mse with --owner: what the other records of an owner give away of one is not known; give nats or "
            "--target-identification"
        )
    if isinstance(target, Capacity):
        return replace(target, uses=uses * times, records=most)
    if times == 1:
        return replace(target, records=most)  # type: ignore[type-var]
    total = target.nats  # type: ignore[attr-defined]
    part = Leakage(total / most, uses=uses).calibrate(records, shape_named(shape), weights, uses)
    ratios = part.ratios
    high = float(uses)
    while joint_information(ratios, high) < total:
        high *= 2.0
    planned = brentq(lambda count: joint_information(ratios, count) - total, uses, high)
    return replace(target, uses=math.ceil(planned))  # type: ignore[type-var]
