"""Readers of tables and records that commands write, which check the columns that are needed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leakbound.storage.files import read_json, read_rows
from leakbound.storage.limits import DamagedFileError

if TYPE_CHECKING:
    import pandas as pd

ColumnKind = Literal["number", "text", "truth"]
CURVES: Mapping[str, ColumnKind] = {
    **dict.fromkeys(("replica", "learning_rate", "step", "value"), "number"),
    "metric": "text",
}
"""Columns of the curves of a training."""
RATES: Mapping[str, ColumnKind] = {
    **dict.fromkeys(("replica", "learning_rate", "validation_accuracy", "validation_loss"), "number"),
    **dict.fromkeys(("diverged", "chosen", "at_edge", "kept"), "truth"),
}
"""Columns of the candidate learning rates of a training, one row for each replica and candidate."""
SCORES: Mapping[str, ColumnKind] = {
    **dict.fromkeys(("replica", "learning_rate", "unit", "value", "low", "high"), "number"),
    **dict.fromkeys(("variant", "metric", "status"), "text"),
    "chosen": "truth",
}
"""Columns of the rows of an attack."""
_FEDERATED: Mapping[str, ColumnKind] = {
    **dict.fromkeys(("replica", "communication_round", "unit", "value"), "number"),
    "metric": "text",
}


def read_table(path: Path, columns: Mapping[str, ColumnKind], command: str) -> pd.DataFrame:
    """Read a table that a command wrote.

    Args:
        path: Parquet file.
        columns: Columns that are needed, with the kind of their values.
        command: Command that writes such tables, for the message.

    Raises:
        DamagedFileError: If the table cannot be read, lacks a column, or a column holds another kind of
            values.
    """
    from pandas.api import types

    checks = {"number": types.is_numeric_dtype, "text": types.is_string_dtype, "truth": types.is_bool_dtype}
    rows = read_rows(path)
    for name, kind in columns.items():
        if name not in rows.columns:
            raise other_file(path, f"it lacks the column {name}", command)
        # A column without values, e.g. of intervals, has no type.
        values = rows[name].dropna().infer_objects()
        if not (values.empty or checks[kind](values)):
            raise other_file(path, f"its column {name} holds no {kind}", command)
    return rows


def read_federated(path: Path) -> pd.DataFrame:
    """Read the rows of a federated run."""
    return read_table(path, _FEDERATED, "federate")


def read_record(path: Path, command: str) -> dict[str, Any]:
    """Read a JSON object that a command wrote.

    Raises:
        DamagedFileError: If the file cannot be read or holds no object.
    """
    record = read_json(path)
    if not isinstance(record, dict):
        raise other_file(path, "it holds no object", command)
    return record


def other_file(path: Path, reason: str, command: str) -> DamagedFileError:
    """Make the error for a file that can be read but that a command did not write."""
    return DamagedFileError(path, f"{reason}, so `leakbound step {command}` did not write it")
