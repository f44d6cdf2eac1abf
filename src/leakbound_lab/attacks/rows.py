"""Rows of attacks: one for each replica, variant, unit and metric, with a status where there is no result.

An attack that fails for technical reasons is not counted: its start would pass for its success or failure.
Its row has no value and states why.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound_lab.attacks import metrics

COLUMNS = ("replica", "variant", "unit", "metric", "value", "low", "high", "status")
_KEY = ("replica", "variant", "unit", "metric")
STUCK = "stuck"
"""The objective has no slope at any start that was tried, or the iterate ended where it began: no value."""
NOT_CONVERGED = "not_converged"
"""The objective is no lower at the end than at the start: no value."""
DIVERGED = "diverged"
"""The attacked weights or the iterate are not finite: no value."""
GRID_EDGE = "grid_edge"
"""The best setting is at an edge of the attacker's grid after all extensions: the value stands, as a warning."""
NO_RESULT = (STUCK, NOT_CONVERGED, DIVERGED)
"""Statuses of rows without a value."""
_METRICS = {"mse": metrics.mse, "psnr": metrics.psnr, "ssim": metrics.ssim, "cosine": metrics.cosine}


def image_values(
    truth: metrics.Pictures, candidates: metrics.Pictures, names: Sequence[str] = tuple(_METRICS)
) -> dict[str, Float[np.ndarray, " n"]]:
    """Compute MSE, PSNR, SSIM and cosine of each candidate, by name.

    Args:
        truth: Images on [-1, 1].
        candidates: What an attacker made of them, same scale. Values of an image are NaN if one of its
            pixels is not finite.
        names: Metrics to compute: mse, psnr, ssim, cosine. Records too small for SSIM's window, such as those
            of a table, have no ssim.
    """
    if min(truth.shape[-2:]) < metrics.LEAST_SIDE:
        names = [name for name in names if name != "ssim"]
    finite = np.isfinite(candidates).all(axis=(1, 2, 3))
    values = {name: np.full(len(truth), np.nan) for name in names}
    if finite.any():
        for name, column in values.items():
            column[finite] = _METRICS[name](truth[finite], candidates[finite])
    return values


def checked(
    result: Any, name: str, replicas: Sequence[int] = ()
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Check what the function of an attack returned, and return it.

    Means over replicas are taken of the rows that are there, so a replica that is left out, a row that comes twice,
    and a value that is missing without a reason would pass for a result.

    Args:
        result: Its result.
        name: Name of the attack, for messages.
        replicas: Replicas that it was asked for. None are not compared.

    Raises:
        ValueError: If it is not a table and a mapping, the table lacks a column or a replica or has one too many, two
            rows are of the same value, or a value is missing without a status.
    """
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], pd.DataFrame)):
        raise ValueError(
            f"attack {name} returned a {type(result).__name__}; return (rows, arrays): a table and a mapping"
        )
    lacking = [column for column in COLUMNS[:-1] if column not in result[0]]
    if lacking:
        raise ValueError(
            f"attack {name} returned rows without {', '.join(lacking)}; "
            f"they have {', '.join(map(str, result[0]))}"
        )
    _check_rows(result[0], name, replicas)
    return result


def _check_rows(table: pd.DataFrame, name: str, replicas: Sequence[int]) -> None:
    """Refuse rows of other replicas, rows of the same value, and values that are missing without a status."""
    returned = {*table["replica"].tolist()}
    if replicas and (odd := sorted(returned.symmetric_difference(replicas))):
        said = "no rows of" if odd[0] in replicas else "rows of another"
        raise ValueError(
            f"attack {name} returned {said} replica {odd[0]}; it was asked for {', '.join(map(str, replicas))}: return "
            f"rows of each, with a status (e.g. {DIVERGED!r}) where there is no value"
        )
    key = [column for column in (*_KEY, "learning_rate") if column in table]
    if (twice := table.duplicated(key)).any():
        where = ", ".join(f"{column} {value}" for column, value in table.loc[twice, key].iloc[0].items())
        raise ValueError(f"attack {name} returned two rows of the same value ({where}); return one of each")
    status = table["status"].fillna("") if "status" in table else pd.Series("", table.index)
    if (lacking := table["value"].isna() & (status == "")).any():
        where = ", ".join(f"{column} {value}" for column, value in table.loc[lacking, key].iloc[0].items())
        raise ValueError(
            f"attack {name} returned no value and no status ({where}); state why, e.g. status {DIVERGED!r}, or leave "
            "the metric out for all replicas"
        )


def row(
    variant: str, metric: str, value: float, *, unit: int = -1, low: float = math.nan, high: float = math.nan
) -> dict[str, object]:
    """Make one row of a replica.

    Args:
        variant: Attacker or control.
        metric: Name of the value.
        value: The value, or NaN where there is none.
        unit: What the value belongs to, >= 0, such as a class or a number of uses, or -1 for all.
        low: Lower end of its interval, or NaN without one.
        high: Upper end of its interval, or NaN without one.
    """
    return {"variant": variant, "unit": unit, "metric": metric, "value": value, "low": low, "high": high}


def table_of(replica: int, records: Iterable[Mapping[str, object]]) -> pd.DataFrame:
    """Make a table of a replica's rows, as :func:`row` makes them, with the columns ``COLUMNS``.

    Args:
        replica: Number of the attacked replica.
        records: The rows. They may have a ``status``, else all are valid.
    """
    return pd.DataFrame(columns_of(replica, records))


def columns_of(replica: int, records: Iterable[Mapping[str, object]]) -> dict[str, Any]:
    """Make the columns of :func:`table_of`, which :func:`joined_columns` joins faster than tables are.

    Args:
        replica: Number of the attacked replica.
        records: The rows.
    """
    # Column by column, because pandas takes four times as long to make a table of records.
    listed = [{"status": "", **record} for record in records]
    return {"replica": replica} | {name: [record[name] for record in listed] for name in COLUMNS[1:]}


def rows(
    replica: int,
    variant: str,
    units: Iterable[int],
    values: dict[str, Float[np.ndarray, " n"]],
    status: str | Sequence[str] = "",
) -> pd.DataFrame:
    """Make one row per unit and metric, without intervals.

    Args:
        replica: Number of the attacked replica.
        variant: Attacker or control.
        units: Class or image index of each value.
        values: Metric name to one value per unit.
        status: Status of all units or of each, or empty for a valid one.
    """
    return pd.DataFrame(columns(replica, variant, units, values, status))


def columns(
    replica: int,
    variant: str,
    units: Iterable[int],
    values: dict[str, Float[np.ndarray, " n"]],
    status: str | Sequence[str] = "",
) -> dict[str, Any]:
    """Make the columns of :func:`rows`, which :func:`joined_columns` joins faster than tables are."""
    listed = list(units)
    return {
        "replica": replica,
        "variant": variant,
        "unit": listed * len(values),
        "metric": np.repeat(list(values), len(listed)),
        "value": np.concatenate(list(values.values()), dtype=np.float64),
        # Without an interval, low and high are empty columns.
        **dict.fromkeys(("low", "high"), np.full(len(listed) * len(values), np.nan, dtype=object)),
        "status": ([status] * len(listed) if isinstance(status, str) else list(status)) * len(values),
    }


def joined_columns(parts: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Make one table of several parts, as :func:`columns` or :func:`columns_of` makes them.

    A column of a part is a value for each row, or one for all.
    """
    counts = [len(part["unit"]) for part in parts]

    def joined(values: list[Any]) -> np.ndarray:
        """Join the values of a column."""
        single = np.ndim(values[0]) == 0
        return np.repeat(values, counts) if single else np.concatenate(values)

    return pd.DataFrame({name: joined([part[name] for part in parts]) for name in parts[0]})


def mean_roc_curve(
    members: Float[np.ndarray, "r m"], nonmembers: Float[np.ndarray, "r n"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Average the true-positive rates of replicas at equal false-positive rates, of which 1/n is the least.

    Args:
        members: Scores of the members of each replica, higher means member. NaN for a replica without scores.
        nonmembers: Scores of its non-members, likewise.
    """
    count = nonmembers.shape[1]
    rates = np.unique(np.geomspace(1, count, 60).round()) / count
    scored = np.isfinite(members).all(axis=1) & np.isfinite(nonmembers).all(axis=1)
    curves = [
        metrics.roc_curve(*replica) for replica in zip(members[scored], nonmembers[scored], strict=True)
    ]
    reached = [
        np.append(0.0, true)[np.searchsorted(false, rates + 1e-12, side="right")] for false, true in curves
    ]
    return rates, np.mean(reached, axis=0)
