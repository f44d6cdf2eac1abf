"""Choice of the learning rate of each replica: all candidates train at full length, validation decides."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from leakbound.config.training import Length
from leakbound.training.request import Slot

RATE_COLUMNS = (
    "replica",
    "learning_rate",
    "validation_accuracy",
    "validation_loss",
    "diverged",
    "chosen",
    "at_edge",
)


def chosen_rates(slots: Sequence[Slot], curves: pd.DataFrame, diverged: Sequence[bool]) -> pd.DataFrame:
    """Choose the candidate with the best validation accuracy at the end, for each replica independently.

    If accuracies are equal, the lower loss decides, and then the smaller rate. A diverged candidate is chosen
    only if all have diverged. A grid of one candidate has no edge.

    Args:
        slots: Replicas and candidates.
        curves: Curves of the slots, as :class:`leakbound.training.request.TrainingResult` has them.
        diverged: Whether each slot diverged.

    Returns:
        One row per slot with the columns ``RATE_COLUMNS``. Accuracy and loss (nats) are NaN for a diverged
        slot. ``at_edge`` marks a chosen candidate that is the smallest or the largest one.
    """
    last = curves.drop_duplicates(["replica", "learning_rate", "metric"], keep="last")
    ends = last.set_index(["replica", "learning_rate", "metric"])["value"]
    rows = []
    for slot, failed in zip(slots, diverged, strict=True):
        keys = [(slot.replica, slot.learning_rate, f"validation_{name}") for name in ("accuracy", "loss")]
        values = (np.nan, np.nan) if failed else (float(ends[key]) for key in keys)
        rows.append((slot.replica, slot.learning_rate, *values, failed))
    table = pd.DataFrame(rows, columns=list(RATE_COLUMNS[:-2]))
    ranked = table.sort_values(
        ["replica", "diverged", "validation_accuracy", "validation_loss", "learning_rate"],
        ascending=[True, True, False, True, True],
        kind="stable",
    )
    best = ranked.drop_duplicates("replica").index
    edges = table.groupby("replica")["learning_rate"].agg(["min", "max"]).loc[table["replica"]]
    rates = table["learning_rate"].to_numpy()
    outer = (rates == edges["min"].to_numpy()) | (rates == edges["max"].to_numpy())
    inner = edges["min"].to_numpy() < edges["max"].to_numpy()
    chosen = table.index.isin(best)
    return table.assign(chosen=chosen, at_edge=chosen & outer & inner)


def rates_of_lengths(rates: pd.DataFrame, lengths: Sequence[Length], ends: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each slot and length, in this order.

    Args:
        rates: One row per slot, as :func:`chosen_rates` returns them. They are the rows of the full length.
        lengths: All lengths, the last one ``full``.
        ends: Points of the other lengths, with the columns of curves and ``length``.

    Returns:
        The columns ``RATE_COLUMNS`` and ``length``. Only the full length can be ``chosen``. A length without
        a point counts as diverged.
    """
    points = ends.set_index(["replica", "learning_rate", "length", "metric"])["value"]
    rows = []
    for row in rates.to_dict("records"):
        for length in lengths[:-1]:
            keys = {name: (row["replica"], row["learning_rate"], length, name) for name in RATE_COLUMNS[2:4]}
            values = {name: float(points.get(key, np.nan)) for name, key in keys.items()}
            diverged = bool(np.isnan([*values.values()]).any())
            rows.append(
                {**row, **values, "diverged": diverged, "chosen": False, "at_edge": False, "length": length}
            )
        rows.append({**row, "length": lengths[-1]})
    return pd.DataFrame(rows)
