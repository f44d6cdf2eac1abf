"""Improvements of defended networks over undefended ones, and the gap between training and test accuracy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

IDENTITY = ("run", "dataset", "model", "defense", "level", "rounds", "batch_size")
"""Columns that distinguish runs."""
SETTING = ("dataset", "model", "rounds", "batch_size")
"""Columns that a run shares with its undefended counterpart."""
NETWORK = ("replica", "learning_rate", "length")
"""Columns that distinguish networks of a run."""
ALL = -1
"""Unit of a summary over units, and replica of a statement about all replicas."""

Values = float | np.ndarray


def improvements(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Derive improvements over the undefended run for each network, and the gap between accuracies.

    Args:
        rows: Tidy rows of all runs.

    Returns:
        A table for each derived metric that has values.
    """
    aucs = _per_network(rows, "membership", "strongest", "auc")
    errors = _per_network(rows, "model_inversion", "printed", "mse")
    train, test = (
        _per_network(rows, "training", "", metric) for metric in ("train_accuracy", "test_accuracy")
    )
    mia = _improvement(aucs, imp_mia)
    dra = _improvement(errors, imp_dra, average=_harmonic_mean)
    dra_gain = _improvement(_bounded_errors(rows), imp_dra, average=_harmonic_mean)
    derived = {
        "imp_mia": mia,
        "imp_dra": dra,
        "imp_dra_gain": dra_gain,
        "gdc": _joined(mia, dra, gdc),
        "gdc_gain": _joined(mia, dra_gain, gdc),
        "accuracy_gap": _joined(train, test, np.subtract),
    }
    return [frame.assign(source="derived", metric=name) for name, frame in derived.items() if not frame.empty]


def _per_network(rows: pd.DataFrame, source: str, variant: str, metric: str) -> pd.DataFrame:
    """Return the rows of one summary metric: identity, network and value."""
    chosen = (rows["source"] == source) & (rows["variant"] == variant) & (rows["metric"] == metric)
    return rows[chosen & (rows["unit"] == ALL)][[*IDENTITY, *NETWORK, "chosen", "value"]]


def _bounded_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the MSE of the tuned model inversion or of its start, the lower in each class: median over classes."""
    chosen = (rows["source"] == "model_inversion") & (rows["metric"] == "mse") & (rows["unit"] != ALL)
    start, tuned = (rows[chosen & (rows["variant"] == variant)] for variant in ("start", "tuned"))
    unit = ["run", *NETWORK, "unit"]
    both = tuned.merge(start[[*unit, "value"]], on=unit, suffixes=("", "_start"))
    both["value"] = both[["value", "value_start"]].min(axis=1, skipna=False)
    return both.groupby([*IDENTITY, *NETWORK, "chosen"], as_index=False, dropna=False)["value"].median()


def _improvement(
    rows: pd.DataFrame,
    formula: Callable[[Any, Any], Any],
    average: Callable[[pd.Series[float]], float] = pd.Series.mean,
) -> pd.DataFrame:
    """Apply ``formula`` to each network's value and the average of undefended ones of its setting, at chosen rates."""
    undefended = rows[(rows["defense"] == "none") & rows["chosen"]]
    reference = undefended.groupby(list(SETTING))["value"].agg(average).rename("reference").reset_index()
    joined = rows.merge(reference, on=list(SETTING))
    value = formula(joined["value"].to_numpy(float), joined["reference"].to_numpy(float))
    return joined.assign(value=value).drop(columns="reference")


def _harmonic_mean(errors: pd.Series[float]) -> float:
    """Average errors so that the replicas with these errors improve by 0 on average, since IMP_DRA divides by MSE."""
    return 1.0 / float((1.0 / errors).mean())


def _joined(first: pd.DataFrame, second: pd.DataFrame, formula: Callable[[Any, Any], Any]) -> pd.DataFrame:
    """Apply ``formula`` to both values of each network that has both."""
    by = ["run", *NETWORK]
    both = first.merge(second[[*by, "value"]], on=by, suffixes=("", "_second"))
    value = formula(both["value"].to_numpy(float), both["value_second"].to_numpy(float))
    return both[[*IDENTITY, *NETWORK, "chosen"]].assign(value=value)


def imp_mia(auc: Values, auc_undefended: Values) -> Values:
    """Compute the improvement against membership inference, (AUC₀ − AUC) / AUC₀.

    Args:
        auc: AUC of the attack on the defended model, in (0, 1].
        auc_undefended: AUC₀ of the attack on the undefended model, in (0, 1].

    Returns:
        0 for no improvement. A perfect defense (AUC = ½) reaches 1 − 1/(2 AUC₀), never more than ½.

    Source:
        Tan et al. 2024, Sec. 6.1.
    """
    return (auc_undefended - auc) / auc_undefended


def imp_dra(error: Values, error_undefended: Values) -> Values:
    """Compute the improvement against reconstruction as the paper prints it, 1 − MSE₀ / MSE.

    The formula credits a defense for each increase of the error, even if the attack learned nothing in either
    case. With errors bounded by that of the attack's start, min(MSE, MSE of the start), it counts only what
    the attack gains over its start. It is then 0 if the attack gains nothing, with and without a defense.

    Args:
        error: MSE of the attack on the defended model, > 0.
        error_undefended: MSE₀ without a defense, in the same units.

    Returns:
        0 for no improvement, at most 1, and negative if the defense helps the attacker.

    Source:
        Tan et al. 2024, Sec. 6.1.
    """
    return 1.0 - error_undefended / error


def gdc(improvement_mia: Values, improvement_dra: Values) -> Values:
    """Compute the general defense capability, the mean of both improvements, (IMP_MIA + IMP_DRA) / 2.

    Args:
        improvement_mia: IMP_MIA of :func:`imp_mia`.
        improvement_dra: IMP_DRA of :func:`imp_dra`, of errors as they are for the printed figure, of bounded
            errors for the figure by gain.

    Source:
        Tan et al. 2024, Sec. 6.1.
    """
    return (improvement_mia + improvement_dra) / 2.0
