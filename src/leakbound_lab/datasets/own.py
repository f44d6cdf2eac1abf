"""The user's own records as a dataset of the workflow: images as two Parquet files, or a copy of a table."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from jaxtyping import Bool, Int

from leakbound.records.arrays import StoredArrays
from leakbound.records.collection import Collection, write_pictures
from leakbound.records.records import DatasetError, first_copies
from leakbound.records.tables import Table
from leakbound.storage.parquet import shards
from leakbound_lab.datasets.records import gather_copies, join_groups, number_owners

_TEST = 0.15
"""Share of the records that are used for accuracy alone."""
_OF_CLASS = 20
"""Smallest number of records of a class."""


def write_dataset(folder: Path, name: str, images: Collection, seed: int) -> tuple[int, int]:
    """Write ``<name>_train.parquet`` and ``<name>_test.parquet``, a random split with the same classes in both.

    All copies of a record are in the same file, and so are all records of an owner, who then are drawn at random for
    the test file, whatever their classes. Nobody else can read the files.

    Args:
        folder: Existing folder for the files.
        name: Name of the dataset.
        images: Labelled images of one size, with owners if a column says whose they are.
        seed: Seed of the split.

    Returns:
        Numbers of training and of test records.

    Raises:
        DatasetError: If there are no labels, only one class, or a class with fewer than 20 records.
    """
    if images.labels is None:
        raise DatasetError(
            f"{images.origin}: holds no labels, and a network needs some to learn; give images in one subfolder for "
            "each class, or Parquet with a column of labels"
        )
    counts = class_counts(images.origin, images.labels, images.classes)
    generator = np.random.default_rng(seed)
    copies = first_copies(images.values)
    if images.owners is None:
        test = np.zeros(len(images), bool)
        for label in range(len(counts)):
            rows = generator.permutation(np.flatnonzero(images.labels == label))
            test[rows[: round(_TEST * len(rows))]] = True
        parts = [generator.permutation(np.flatnonzero(part)) for part in (~test, test)]
        parts = gather_copies(parts, copies, images.labels, str(images.origin))
    else:
        test = _draw_groups(join_groups(copies, number_owners(images.owners)[0]), generator)
        parts = [np.flatnonzero(~test), np.flatnonzero(test)]
        if not len(parts[1]):
            raise DatasetError(
                f"{images.origin}: every owner has more than {_TEST:.0%} of the records, so none can be set aside for "
                "a test; give records of more people"
            )
    for split, rows in zip(("train", "test"), map(np.sort, parts), strict=True):
        part = replace(
            images,
            origin=Path(f"{name}_{split}.parquet"),
            kind="parquet",
            stored=None,
            values=images.values[rows],
            labels=images.labels[rows],
            column="label",
            owners=None if images.owners is None else [images.owners[row] for row in rows],
        )
        write_pictures(folder, part, [part.values])
    _keep_private(folder)
    return len(parts[0]), len(parts[1])


def _draw_groups(groups: Int[np.ndarray, " n"], generator: np.random.Generator) -> Bool[np.ndarray, " n"]:
    """Return which records are for the test: those of whole groups, drawn at random until its share is filled."""
    test = np.zeros(len(groups), bool)
    room = round(_TEST * len(groups))
    for group in generator.permutation(np.unique(groups)):
        members = groups == group
        if members.sum() <= room:
            test |= members
            room -= int(members.sum())
    return test


def class_counts(origin: Path | str, labels: Int[np.ndarray, " n"], classes: Sequence[str]) -> np.ndarray:
    """Count the records of each class.

    Raises:
        DatasetError: If there is only one class, or a class with fewer than 20 records.
    """
    counts = np.bincount(labels, minlength=len(classes))
    if len(counts) < 2:
        raise DatasetError(
            f"{origin}: holds one class; a network that distinguishes classes needs at least 2"
        )
    if counts.min() < _OF_CLASS:
        scarce = classes[int(counts.argmin())] if classes else str(int(counts.argmin()))
        raise DatasetError(
            f"{origin}: class {scarce!r} has {counts.min()} records; each needs at least {_OF_CLASS}: add some, "
            "or leave the class out"
        )
    return counts


def copy_table(
    folder: Path,
    table: Table,
    *,
    changed: bool = False,
    owners: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> tuple[str, int, int]:
    """Copy a table: its files, or what was read of them. Nobody else can read the copies.

    Args:
        folder: Folder of the copy.
        table: Labelled records.
        changed: Whether columns or records were left out, encoded or filled in, so that the files are no copy.
        owners: Name of the column that says whose a record is, to the owner of each record. Empty without owners.

    Returns:
        Name of the copy, and numbers of training and of test records, which ``prepare`` splits.

    Raises:
        DatasetError: If there is only one class, or a class with fewer than 20 records.
    """
    class_counts(table.origin, table.labels, table.classes)
    folder.mkdir(parents=True, exist_ok=True)
    origin = Path(table.origin)
    if changed or origin.is_dir() or origin.suffix.lower() not in (".csv", ".parquet", ".npz"):
        names = [
            f"own{Path(table.stored.name).suffix}"
            if isinstance(table.stored, StoredArrays)
            else "own.parquet"
        ]
        table.stored.write(
            folder / names[0], table.values.reshape(len(table.values), -1), table.labels, owners
        )
    else:
        files = shards(origin)
        names = [f"own{path.stem[-15:] if files[1:] else ''}{path.suffix.lower()}" for path in files]
        for path, name in zip(files, names, strict=True):
            shutil.copyfile(path, folder / name)
    _keep_private(folder)
    test = round(_TEST * len(table.labels))
    return names[0], len(table.labels) - test, test


def _keep_private(folder: Path) -> None:
    """Let only the owner read a folder and its files."""
    folder.chmod(0o700)
    for path in folder.iterdir():
        path.chmod(0o600)
