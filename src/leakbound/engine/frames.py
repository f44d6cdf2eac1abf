"""Rows as users of scikit-learn hold them: frames, arrays and tensors, columns by name, and owners of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn import get_config
from torch import Tensor

from leakbound.engine.records import as_tensor, check_dense
from leakbound.engine.refusals import GuaranteeError


def column_names(rows: Any) -> list[Any] | None:
    """Return the names of a frame's columns, None for anything else."""
    return list(rows.columns) if hasattr(rows, "columns") and hasattr(rows, "__getitem__") else None


def ordered_as(names: list[Any] | None, auxiliary: Any) -> Any:
    """Return auxiliary records with the columns, in the order, that the rows have.

    Args:
        names: Columns of the rows, None if they have no names.
        auxiliary: Frame, whose columns are found by name, or array, whose columns are taken as they are.

    Raises:
        GuaranteeError: If a column is missing.
    """
    columns = column_names(auxiliary)
    if names is None or columns is None or columns == names:
        return auxiliary
    if missing := [name for name in names if name not in columns]:
        raise GuaranteeError(
            f"auxiliary: lacks the columns {', '.join(map(repr, missing[:5]))} of X and has "
            f"{', '.join(map(repr, columns[:5]))}: give records with the same columns, in any order"
        )
    return auxiliary[names]


def owners_of(rows: Any, owner: Any, argument: Any) -> tuple[Any, list[Any] | None]:
    """Separate rows from the owner of each.

    Args:
        rows: (n, d) frame or array.
        owner: Column of a frame, which is left out of the rows, or level of its index. None for its index where
            that names rows, as one of numbers from 0 does not. False for none.
        argument: (n,) owners as an argument, which come before those of a frame, or None.

    Returns:
        The rows, and the owner of each or None.

    Raises:
        GuaranteeError: If there is no such column, there are not as many owners as rows, or an index of several
            levels leaves open whom a row is about.
    """
    names = column_names(rows)
    owners = None
    if isinstance(owner, str):
        rows, owners = _separated(rows, names, owner)
    elif owner not in (None, False):
        raise GuaranteeError(
            f"owner = {owner!r}: give the name of a column, None for the index of a frame, or False; owners of rows "
            "as an array are an argument of fit and transform"
        )
    elif owner is None and argument is None and names is not None:
        owners = _owners_by_index(getattr(rows, "index", None))
    owners = owners if argument is None else argument
    if owners is None:
        return rows, None
    listed = np.asarray(owners)
    if listed.ndim != 1 or len(listed) != len(rows):
        raise GuaranteeError(
            f"owner of shape {listed.shape}: give one for each of the {len(rows)} rows, in their order"
        )
    return rows, listed.tolist()


def _separated(rows: Any, names: list[Any] | None, owner: str) -> tuple[Any, np.ndarray]:
    """Separate rows from a column of owners, or read owners from a level of the index, which is no column.

    Raises:
        GuaranteeError: If there is neither.
    """
    index = None if names is None else getattr(rows, "index", None)
    if names is not None and owner in names:
        return rows[[name for name in names if name != owner]], np.asarray(rows[owner])
    if owner in getattr(index, "names", ()):
        return rows, np.asarray(rows.index.get_level_values(owner))
    form = "an array without names" if names is None else f"columns {', '.join(map(repr, names[:8]))}"
    raise GuaranteeError(f"owner = {owner!r}: X is {form}, so give a frame with this column")


def _owners_by_index(index: Any) -> np.ndarray | None:
    """Read owners from the index of a frame. None for one that numbers rows from 0.

    Raises:
        GuaranteeError: If it has several levels, which leave open whom a row is about.
    """
    levels = list(getattr(index, "names", ()))
    if len(levels) > 1:
        raise GuaranteeError(
            f"X has an index of the levels {', '.join(map(repr, levels))}, and rows of one person may differ in "
            "some of them: give owner=, the name of the level that says whom a row is about, or owner=False to "
            "count rows by their values"
        )
    numbers = type(index).__name__ == "RangeIndex" and (index.start, index.step) == (0, 1)
    return None if index is None or (numbers and index.name is None) else np.asarray(index)


def on_host(rows: Any) -> tuple[Any, Callable[[np.ndarray], Any]]:
    """Return rows that NumPy can read, and what brings an array back to where they were.

    Tensors of torch are read on the CPU. They come back as tensors on their device if scikit-learn dispatches
    by array API (``array_api_dispatch``), and else as arrays, as from scikit-learn itself.

    Raises:
        GuaranteeError: If it dispatches, and they are arrays of another library, or they are sparse or masked.
    """
    check_dense(rows)
    dispatches = get_config()["array_api_dispatch"]
    if isinstance(rows, Tensor):
        device = rows.device
        return as_tensor(rows).numpy(), lambda made: torch.from_numpy(made).to(device) if dispatches else made
    if dispatches and hasattr(rows, "__array_namespace__") and not isinstance(rows, np.ndarray):
        raise GuaranteeError(
            f"X is an array of {type(rows).__module__.split('.')[0]}: secure noise is drawn on the CPU, so give arrays "
            "of NumPy, frames or tensors of torch"
        )
    return rows, lambda made: made
