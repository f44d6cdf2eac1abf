"""Tidy tables: one row per run, replica, variant, unit and metric, and improvements derived from these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from leakbound_lab.config.attacks import AttackConfig

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
    """Derive improvements over the undefended run, the gap between accuracies, and what inversion recovers.

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
        "recovered": _recovered(rows, test),
    }
    return [frame.assign(source="derived", metric=name) for name, frame in derived.items() if not frame.empty]


def _per_network(rows: pd.DataFrame, source: str, variant: str, metric: str) -> pd.DataFrame:
    """Return the rows of one summary metric: identity, network and value."""
    mask = (rows["source"] == source) & (rows["variant"] == variant) & (rows["metric"] == metric)
    return rows[mask & (rows["unit"] == ALL)][[*IDENTITY, *NETWORK, "chosen", "value"]]


def _bounded_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the MSE of the tuned model inversion or of its start, the lower in each class: median over classes."""
    mask = (rows["source"] == "model_inversion") & (rows["metric"] == "mse") & (rows["unit"] != ALL)
    start, tuned = (rows[mask & (rows["variant"] == variant)] for variant in ("start", "tuned"))
    unit = ["run", *NETWORK, "unit"]
    both = tuned.merge(start[[*unit, "value"]], on=unit, suffixes=("", "_start"))
    both["value"] = both[["value", "value_start"]].min(axis=1, skipna=False)
    return both.groupby([*IDENTITY, *NETWORK, "chosen"], as_index=False, dropna=False)["value"].median()


def _recovered(rows: pd.DataFrame, networks: pd.DataFrame) -> pd.DataFrame:
    """Compute the part of the mean image's squared error that inversion of one upload removes.

    The upload is that of an untrained network behind the same defense, one for each replica, so that trained
    networks of a replica share the part. Records on which the mean image does better count with its error.
    """
    kinds = (("prior", "mse"), ("attack", "bounded_mse"))
    prior, attack = (_per_network(rows, "gradient_inversion", *kind) for kind in kinds)
    parts = _joined(prior, attack, lambda mean, error: 1.0 - error / mean)
    arm = ["dataset", "model", "defense", "level", "replica"]
    return networks.drop(columns="value").merge(parts[[*arm, "value"]], on=arm)


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


COLUMNS = (
    *(*IDENTITY, "replica", "learning_rate", "chosen"),
    *("source", "variant", "unit", "metric", "value", "low", "high", "status"),
)
_OF_ONE_UNIT = ("residual", "pixel")  # checks and pictures of a unit: their mean over units has no meaning
_SUMMARIES = {name: attack.over_units for name, attack in AttackConfig().all().items()}
_OVER_UNITS = {name: how for name, how in _SUMMARIES.items() if how in ("mean", "median")}


@dataclass(frozen=True)
class RunResults:
    """Results of one run, identified by its slug, as the table collects them.

    Args:
        level: Level of the defense, e.g. a capacity in nats or a noise multiplier. None without a defense.
        rounds: Number of local optimisation steps.
        batch_size: Records in a step.
        rates: A row for each replica and candidate learning rate, as :mod:`leakbound_lab.training.request` makes
            it. None if nothing was trained.
        curves: Columns replica, learning_rate, step, metric, value. None if nothing was trained.
        attacks: Attack name to its rows (replica, learning_rate, chosen, variant, unit, metric, value, low,
            high, status). All these tables have a column ``length`` if several lengths of each training were
            kept.
    """

    run: str
    dataset: str
    model: str
    defense: str
    level: float | None
    rounds: int
    batch_size: int
    rates: pd.DataFrame | None = None
    curves: pd.DataFrame | None = None
    attacks: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def tabulate(
    runs: Iterable[RunResults],
    over_units: Mapping[str, str] = _OVER_UNITS,
    stronger_with: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Put the results of runs, in any order, into one tidy table.

    A run adds the following rows:

    * the last value of each training metric of every candidate learning rate, with source ``training``.
    ``epsilon`` of a network has source ``accounting``, and so have the rows of :func:`accounting_rows` that
    come with the attacks.
    * ``at_edge`` of the chosen learning rate.
    * the rows of its attacks.
    * summaries over the units of an attack, with unit −1: the median over classes of model inversion, the
    mean over images of gradient inversion. Units without a value do not count. There is no summary of
    ``residual`` and ``pixel``, nor of metrics that the attack has summarised itself.

    Networks that diverged have no rows but ``diverged`` = 1. Source ``derived`` contains ``accuracy_gap``,
    training minus test accuracy, and ``recovered`` if runs of the same defenses and levels invert gradients,
    the part of a record that one upload gives away, in [0, 1]. If the undefended counterpart of a run (same
    setting) is in ``runs``, it also contains improvements over the undefended networks at their chosen rates,
    for each replica. ``imp_mia``, ``imp_dra`` and ``gdc`` are as printed. ``imp_dra`` uses the harmonic mean
    of the undefended errors, so that the undefended replicas improve by 0 on average, as they do by
    ``imp_mia``. ``imp_dra_gain`` and ``gdc_gain`` count only gains over the start: they assume an attacker
    who keeps the start of a class if the tuned inversion ends farther off.

    Args:
        runs: Results of runs.
        over_units: Attack to ``mean`` or ``median`` over its units.
        stronger_with: Defense to ``larger level`` or ``smaller level``, for defenses without a default for
            their name.

    Returns:
        Table with the columns ``COLUMNS``, sorted, so that equal runs give equal tables. ``length`` follows
        the learning rate if a run kept several lengths of its trainings. Only networks of full length are
        ``chosen``. ``stronger_with`` is the last column if it is given.
    """
    runs = list(runs)
    frames = [frame for run in runs for frame in _run_frames(run, over_units)]
    if not frames:
        return _typed(pd.DataFrame(columns=list(COLUMNS))).drop(columns="length")
    rows = _typed(pd.concat(frames, ignore_index=True))
    rows = _typed(pd.concat([rows, *improvements(rows)], ignore_index=True))
    order = [*SETTING, "defense", "level", *NETWORK, "source", "variant", "metric", "unit"]
    rows = rows.sort_values(order, kind="stable", na_position="first").reset_index(drop=True)
    several = any(run.rates is not None and "length" in run.rates for run in runs)
    if stronger_with:
        rows = rows.assign(stronger_with=rows["defense"].map(stronger_with))
    return rows if several else rows.drop(columns="length")


def accounting_rows(leakage: Mapping[str, Any] | None) -> pd.DataFrame:
    """Put the bounds in a run's provenance into rows of an attack.

    Args:
        leakage: Bounds by ``replica`` and ``replicas`` (all together), or None without bounds.

    Returns:
        Rows with variant ``replica`` or ``replicas``, and replica -1 for all. Metrics are ``record``,
        ``dataset``, ``linear`` and ``printed`` in nats, and ``epsilon``.
    """
    rows = [
        {"variant": variant, "metric": metric, "value": float(value)}
        for variant in ("replica", "replicas")
        for metric, value in (leakage or {}).get(variant, {}).items()
        if metric not in ("uses", "delta", "accountant")
    ]
    frame = pd.DataFrame(rows, columns=["variant", "metric", "value"])
    return frame.assign(
        replica=ALL, learning_rate=np.nan, chosen=True, unit=ALL, low=np.nan, high=np.nan, status=""
    )


def _run_frames(run: RunResults, over_units: Mapping[str, str]) -> list[pd.DataFrame]:
    """Return all rows of one run except the derived ones."""
    identity = {column: getattr(run, column) for column in IDENTITY}
    tables = {name: _with_length(rows) for name, rows in run.attacks.items()}
    attacks = [
        frame for name, rows in sorted(tables.items()) for frame in _attack_frames(name, rows, over_units)
    ]
    if run.rates is None:
        return _joined_frames(attacks, identity)
    tried = _with_length(run.rates)[[*NETWORK, "chosen", "diverged", "at_edge"]]
    counted = tried.drop(columns="at_edge").rename(columns={"diverged": "value"}).assign(metric="diverged")
    sound = tried[tried["chosen"] & ~tried["diverged"]]
    edges = sound.drop(columns="diverged").rename(columns={"at_edge": "value"}).assign(metric="at_edge")
    frames = [
        frame.assign(source="training", value=frame["value"].astype(float)) for frame in (counted, edges)
    ]
    if run.curves is not None and not run.curves.empty:
        points = _with_length(run.curves).sort_values("step", kind="stable")
        last = points.groupby([*NETWORK, "metric"], as_index=False).last()
        source = np.where(last["metric"].isin(["epsilon", "leakage"]), "accounting", "training")
        ends = last[[*NETWORK, "metric", "value"]].assign(source=source)
        attacks = [ends.merge(tried[[*NETWORK, "chosen"]], on=list(NETWORK)), *attacks]
    if tried["diverged"].any():
        failed = pd.MultiIndex.from_frame(tried.loc[tried["diverged"], list(NETWORK)])
        attacks = [frame[~pd.MultiIndex.from_frame(frame[list(NETWORK)]).isin(failed)] for frame in attacks]
    return _joined_frames([*frames, *attacks], identity)


def _with_length(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the length of each training. Without a stated length it is full."""
    return rows if "length" in rows else rows.assign(length="full")


def _joined_frames(frames: list[pd.DataFrame], identity: Mapping[str, Any]) -> list[pd.DataFrame]:
    """Join the rows of a run in one frame, if there are any. To add the run to each frame takes twice as long."""
    filled = [frame for frame in frames if not frame.empty]
    return [pd.concat(filled, ignore_index=True).assign(**identity)] if filled else []


def _attack_frames(name: str, rows: pd.DataFrame, over_units: Mapping[str, str]) -> Iterator[pd.DataFrame]:
    """Yield the rows of an attack, and their summaries over units. Units without a value do not count."""
    yield rows.assign(source=name)
    if how := over_units.get(name):
        summarised = {*rows.loc[rows["unit"] < 0, "metric"], *_OF_ONE_UNIT}
        units = rows[(rows["unit"] >= 0) & ~rows["metric"].isin(summarised)]
        summary = units.groupby([*NETWORK, "chosen", "variant", "metric"], dropna=False)["value"].agg(how)
        yield summary.reset_index().assign(unit=ALL, source=name)


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the table with all columns, in order and of fixed types."""
    at = COLUMNS.index("learning_rate") + 1
    rows = rows.reindex(columns=[*COLUMNS[:at], "length", *COLUMNS[at:]])
    names = ("run", "dataset", "model", "defense", "length", "source", "variant", "metric", "status")
    text = dict.fromkeys(names, "str")
    real = dict.fromkeys(("level", "learning_rate", "value", "low", "high"), "float64")
    integers = dict.fromkeys(("rounds", "batch_size", "replica", "unit"), "int64")
    words = {name: rows[name].astype(object).fillna("") for name in ("variant", "status")}
    words["length"] = rows["length"].astype(object).fillna("full")
    rows = rows.assign(**words, unit=rows["unit"].fillna(ALL))
    return rows.astype({**text, **real, **integers, "chosen": "bool"})
