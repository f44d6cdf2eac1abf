"""Readers of tables and records that commands write, which check the columns that are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound.storage.files import read_json, read_rows
from leakbound.storage.limits import DamagedFileError

if TYPE_CHECKING:
    import pandas as pd

CURVES = ("replica", "learning_rate", "step", "metric", "value")
"""Columns of the curves of a training."""
RATES = (
    *("replica", "learning_rate", "validation_accuracy", "validation_loss"),
    *("diverged", "chosen", "at_edge", "kept"),
)
"""Columns of the candidate learning rates of a training, one row for each replica and candidate."""
SCORES = (
    *("replica", "learning_rate", "chosen", "variant", "unit"),
    *("metric", "value", "low", "high", "status"),
)
"""Columns of the rows of an attack."""
_FEDERATED = ("replica", "communication_round", "unit", "metric", "value")


def read_table(path: Path, columns: Sequence[str], command: str) -> pd.DataFrame:
    """Read a table that a command wrote.

    Args:
        path: Parquet file.
        columns: Columns that are needed.
        command: Command that writes such tables, for the message.

    Raises:
        DamagedFileError: If the table cannot be read or lacks a column.
    """
    rows = read_rows(path)
    for name in columns:
        if name not in rows.columns:
            raise other_file(path, f"it lacks the column {name}", command)
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
