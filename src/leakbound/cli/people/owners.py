"""Owners of the user's records: a column of a table or Parquet file, or a part of the paths of pictures."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from scipy.optimize import brentq

from leakbound.accounting.leakage import joint_information
from leakbound.channels.shapes import shape_named
from leakbound.engine.targets import Capacity, Leakage, Reconstruction, Target

if TYPE_CHECKING:
    from leakbound.records.collection import Collection


def owners_of(private: Collection, owner: str) -> list[str]:
    """Return the owner of each record.

    Raises:
        BadParameter: If a record has none, or the form of the records names none.
    """
    if private.kind == "folders":
        return _of_paths(private, owner)
    if private.kind == "array" or private.origin.suffix.lower() == ".npz":
        raise typer.BadParameter(
            f"--owner {owner}: {private.origin} has no columns; give a table, a Parquet file or a folder of images"
        )
    import pandas as pd

    from leakbound.storage.parquet import shards

    try:
        if private.origin.is_dir() or private.origin.suffix.lower() == ".parquet":
            parts = [pd.read_parquet(shard, columns=[owner])[owner] for shard in shards(private.origin)]
            column = pd.concat(parts, ignore_index=True)
        else:
            column = pd.read_csv(private.origin, usecols=[owner], dtype=str, sep=None, engine="python")[owner]
    except (KeyError, OSError, ValueError) as error:
        raise typer.BadParameter(
            f"--owner {owner}: is no column that can be read from {private.origin}"
        ) from error
    if len(column) != len(private):
        raise typer.BadParameter(
            f"--owner {owner}: {private.origin} has {len(column)} rows and {len(private)} records; leave out the rows "
            "that are no records"
        )
    if column.isna().any():
        raise typer.BadParameter(
            f"--owner {owner}: record {int(column.isna().to_numpy().argmax())} of {private.origin} has none; give each "
            "record the name or number of whom it is about"
        )
    return [str(value) for value in column]


def _of_paths(private: Collection, pattern: str) -> list[str]:
    """Return what the group of a pattern is in the path of each picture below the folder."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise typer.BadParameter(f"--owner {pattern}: is no regular expression ({error})") from error
    if expression.groups != 1:
        raise typer.BadParameter(
            f"--owner {pattern}: has {expression.groups} groups; put the owner in brackets, e.g. '(p[0-9]+)_'"
        )
    matches = [expression.search(name) for name in private.names]
    for name, match in zip(private.names, matches, strict=True):
        if match is None or not match[1]:
            raise typer.BadParameter(f"--owner {pattern}: is not in the path {name} of {private.origin}")
    return [match[1] for match in matches if match is not None]


def most_records(values: np.ndarray, owners: Sequence[str]) -> int:
    """Count the releases that say something about an owner, where each record is released once, at most.

    Equal records of several owners are released for each of them.
    """
    records = [row.tobytes() for row in values]
    times, held = Counter(records), defaultdict(set)
    for record, owner in zip(records, owners, strict=True):
        held[owner].add(record)
    return max(sum(times[record] for record in of_owner) for of_owner in held.values())


def for_owners(target: Target, records: np.ndarray, shape: str, weights: Any, most: int) -> Target:
    """Plan a target in nats for all records of an owner together, whatever these have in common.

    Their nats are added, since they may be independent of each other. So each has the ``most``-th part of the
    total, and as many uses are planned as reach the total if they were of one record.

    Args:
        target: Target of the calibration.
        records: (n, ...), those that the noise is calibrated to.
        shape: Shape of the noise.
        weights: Relative noise variances, for the shape ``personalized``.
        most: Releases of the records of one owner.

    Raises:
        BadParameter: If it is an error of reconstruction.
    """
    uses = target.uses or 1
    if most == 1:
        return target
    if isinstance(target, Reconstruction):
        raise typer.BadParameter(
            "--target-mse with --owner: what the other records of an owner give away of one is not known; give nats or "
            "--target-identification"
        )
    if isinstance(target, Capacity):
        return replace(target, uses=None)
    total = target.nats  # type: ignore[attr-defined]
    part = Leakage(total / most, uses=uses).calibrate(records, shape_named(shape), weights, uses)
    ratios = part.ratios
    high = float(uses)
    while joint_information(ratios, high) < total:
        high *= 2.0
    planned = brentq(lambda count: joint_information(ratios, count) - total, uses, high)
    return replace(target, uses=math.ceil(planned))  # type: ignore[type-var]
