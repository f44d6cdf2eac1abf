"""Tidy tables: one row per run, replica, attack variant, unit and metric, and the quantities derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from leakbound import metrics
from leakbound.config.attacks import AttackConfig

IDENTITY = ("run", "dataset", "model", "defense", "level", "rounds", "batch_size")
"""Columns that tell runs apart."""
COLUMNS = (
    *(*IDENTITY, "replica", "learning_rate", "chosen"),
    *("source", "variant", "unit", "metric", "value", "low", "high", "status"),
)
SETTING = ("dataset", "model", "rounds", "batch_size")
_OF_ONE_UNIT = ("residual", "pixel")  # checks and pictures of a unit: their mean over units says nothing
_ALL = -1
_NETWORK = ["replica", "learning_rate", "length"]
_SUMMARIES = {name: attack.over_units for name, attack in AttackConfig().all().items()}
_OVER_UNITS = {name: how for name, how in _SUMMARIES.items() if how in ("mean", "median")}


@dataclass(frozen=True)
class RunResults:
    """Results of one run, named by its slug, as the table gathers them.

    Args:
        level: Capacity in nats or noise multiplier; None without a defense.
        rounds: Local optimisation steps.
        batch_size: Records in a step.
        rates: A row for each replica and candidate learning rate, as :mod:`leakbound.training.rates` makes it; None if
            nothing was trained.
        curves: Columns replica, learning_rate, step, metric, value; None if nothing was trained.
        attacks: Attack name to its rows (replica, learning_rate, chosen, variant, unit, metric, value, low, high,
            status). All of these have a column ``length`` where several lengths of each training were kept.
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


def tabulate(runs: Iterable[RunResults], over_units: Mapping[str, str] = _OVER_UNITS) -> pd.DataFrame:
    """Put the results of runs, in any order, into one tidy table.

    A run adds the last value of each training metric of every candidate learning rate, and of the chosen one
    ``at_edge`` (source ``training``; ``epsilon``, of one network, has source ``accounting``, and so have the rows of
    :func:`accounting_rows` that are given with the attacks), its attacks' rows, and summaries over an attack's units
    with unit −1 as ``over_units`` has them, of every metric but ``residual``, ``pixel`` and those that the attack has
    summarised itself, without units that have no value: the median over classes of model inversion, the mean over
    images of gradient inversion. Source ``derived`` holds ``accuracy_gap``, training minus test accuracy, and for each
    replica of a run whose undefended counterpart (same setting) is in ``runs``: ``imp_mia``, ``imp_dra`` (with the
    harmonic mean of the undefended errors, so that the undefended replicas improve by 0 on average, as they do by
    ``imp_mia``) and ``gdc`` as printed, and ``imp_dra_gain`` and ``gdc_gain``, the same for an attacker who keeps the
    start of a class where the tuned inversion ends farther off: only gains over the start count. Networks that diverged
    have no rows but ``diverged`` = 1. Improvements are over the undefended networks at their chosen rates.

    Returns:
        Table with the columns ``COLUMNS``, and ``length`` after the learning rate where a run kept several lengths of
        its trainings, sorted, so that equal runs give equal tables. Only networks of full length are ``chosen``.
    """
    runs = list(runs)
    frames = [frame for run in runs for frame in _run_frames(run, over_units)]
    if not frames:
        return _typed(pd.DataFrame(columns=list(COLUMNS))).drop(columns="length")
    rows = _typed(pd.concat(frames, ignore_index=True))
    rows = _typed(pd.concat([rows, *_improvements(rows)], ignore_index=True))
    order = ["dataset", "model", "rounds", "batch_size", "defense", "level", *_NETWORK, "source", "variant", "metric"]
    rows = rows.sort_values([*order, "unit"], kind="stable", na_position="first").reset_index(drop=True)
    several = any(run.rates is not None and "length" in run.rates for run in runs)
    return rows if several else rows.drop(columns="length")


def accounting_rows(leakage: Mapping[str, Any] | None) -> pd.DataFrame:
    """Bounds that a run's provenance states as rows of an attack, variants ``replica`` and ``replicas`` (all together).

    Replica -1 stands for all. Metrics are ``record``, ``dataset``, ``linear`` and ``printed`` in nats, and ``epsilon``.
    """
    found = [
        {"variant": variant, "metric": metric, "value": float(value)}
        for variant in ("replica", "replicas")
        for metric, value in (leakage or {}).get(variant, {}).items()
        if metric not in ("uses", "delta", "accountant", "stated")
    ]
    frame = pd.DataFrame(found, columns=["variant", "metric", "value"])
    return frame.assign(replica=_ALL, learning_rate=np.nan, chosen=True, unit=_ALL, low=np.nan, high=np.nan, status="")


def _run_frames(run: RunResults, over_units: Mapping[str, str]) -> list[pd.DataFrame]:
    """All rows of one run but the derived ones."""
    identity = {column: getattr(run, column) for column in IDENTITY}
    found = {name: _with_length(rows) for name, rows in run.attacks.items()}
    attacks = [frame for name, rows in sorted(found.items()) for frame in _attack_frames(name, rows, over_units)]
    if run.rates is None:
        return _joined_frames(attacks, identity)
    tried = _with_length(run.rates)[[*_NETWORK, "chosen", "diverged", "at_edge"]]
    counted = tried.drop(columns="at_edge").rename(columns={"diverged": "value"}).assign(metric="diverged")
    sound = tried[tried["chosen"] & ~tried["diverged"]]
    edges = sound.drop(columns="diverged").rename(columns={"at_edge": "value"}).assign(metric="at_edge")
    frames = [frame.assign(source="training", value=frame["value"].astype(float)) for frame in (counted, edges)]
    if run.curves is not None and not run.curves.empty:
        points = _with_length(run.curves).sort_values("step", kind="stable")
        last = points.groupby([*_NETWORK, "metric"], as_index=False).last()
        source = np.where(last["metric"].isin(["epsilon", "leakage"]), "accounting", "training")
        ends = last[[*_NETWORK, "metric", "value"]].assign(source=source)
        attacks = [ends.merge(tried[[*_NETWORK, "chosen"]], on=_NETWORK), *attacks]
    if tried["diverged"].any():
        failed = pd.MultiIndex.from_frame(tried.loc[tried["diverged"], _NETWORK])
        attacks = [frame[~pd.MultiIndex.from_frame(frame[_NETWORK]).isin(failed)] for frame in attacks]
    return _joined_frames([*frames, *attacks], identity)


def _with_length(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of trainings whose lengths are stated; where they are not, all are full."""
    return rows if "length" in rows else rows.assign(length="full")


def _joined_frames(frames: list[pd.DataFrame], identity: Mapping[str, Any]) -> list[pd.DataFrame]:
    """All rows of a run in one frame, if there are any: to name the run in each of several takes twice as long."""
    found = [frame for frame in frames if not frame.empty]
    return [pd.concat(found, ignore_index=True).assign(**identity)] if found else []


def _attack_frames(name: str, rows: pd.DataFrame, over_units: Mapping[str, str]) -> Iterator[pd.DataFrame]:
    """Rows of one attack, and their summaries over units; a unit without a value stays out of them."""
    yield rows.assign(source=name)
    if how := over_units.get(name):
        summarised = {*rows.loc[rows["unit"] < 0, "metric"], *_OF_ONE_UNIT}
        units = rows[(rows["unit"] >= 0) & ~rows["metric"].isin(summarised)]
        summary = units.groupby([*_NETWORK, "chosen", "variant", "metric"], dropna=False)["value"].agg(how)
        yield summary.reset_index().assign(unit=_ALL, source=name)


def _improvements(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Improvements over the undefended run, network by network, and the gap that membership inference lives on."""
    aucs = _per_network(rows, "membership", "strongest", "auc")
    errors = _per_network(rows, "model_inversion", "printed", "mse")
    train, test = (_per_network(rows, "training", "", metric) for metric in ("train_accuracy", "test_accuracy"))
    mia = _improvement(aucs, metrics.imp_mia)
    dra = _improvement(errors, metrics.imp_dra, average=_harmonic_mean)
    dra_gain = _improvement(_bounded_errors(rows), metrics.imp_dra, average=_harmonic_mean)
    derived = {
        "imp_mia": mia,
        "imp_dra": dra,
        "imp_dra_gain": dra_gain,
        "gdc": _joined(mia, dra, metrics.gdc),
        "gdc_gain": _joined(mia, dra_gain, metrics.gdc),
        "accuracy_gap": _joined(train, test, np.subtract),
    }
    return [frame.assign(source="derived", metric=name) for name, frame in derived.items() if not frame.empty]


def _per_network(rows: pd.DataFrame, source: str, variant: str, metric: str) -> pd.DataFrame:
    """The rows of one summary metric: identity, network and value."""
    chosen = (rows["source"] == source) & (rows["variant"] == variant) & (rows["metric"] == metric)
    return rows[chosen & (rows["unit"] == _ALL)][[*IDENTITY, *_NETWORK, "chosen", "value"]]


def _bounded_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """MSE of the tuned model inversion or of its start, whichever is lower in a class: median over classes."""
    chosen = (rows["source"] == "model_inversion") & (rows["metric"] == "mse") & (rows["unit"] != _ALL)
    start, tuned = (rows[chosen & (rows["variant"] == variant)] for variant in ("start", "tuned"))
    unit = ["run", *_NETWORK, "unit"]
    both = tuned.merge(start[[*unit, "value"]], on=unit, suffixes=("", "_start"))
    both["value"] = both[["value", "value_start"]].min(axis=1, skipna=False)
    return both.groupby([*IDENTITY, *_NETWORK, "chosen"], as_index=False, dropna=False)["value"].median()


def _improvement(
    rows: pd.DataFrame,
    formula: Callable[[Any, Any], Any],
    average: Callable[[pd.Series[float]], float] = pd.Series.mean,
) -> pd.DataFrame:
    """``formula`` of each network's value and the average of the undefended ones of the same setting, chosen rates."""
    undefended = rows[(rows["defense"] == "none") & rows["chosen"]]
    reference = undefended.groupby(list(SETTING))["value"].agg(average).rename("reference").reset_index()
    joined = rows.merge(reference, on=list(SETTING))
    value = formula(joined["value"].to_numpy(float), joined["reference"].to_numpy(float))
    return joined.assign(value=value).drop(columns="reference")


def _harmonic_mean(errors: pd.Series[float]) -> float:
    """The reference against which replicas with these errors improve by nothing on average: IMP_DRA divides by MSE."""
    return 1.0 / float((1.0 / errors).mean())


def _joined(first: pd.DataFrame, second: pd.DataFrame, formula: Callable[[Any, Any], Any]) -> pd.DataFrame:
    """``formula`` of both values of each network that has them."""
    by = ["run", *_NETWORK]
    both = first.merge(second[[*by, "value"]], on=by, suffixes=("", "_second"))
    value = formula(both["value"].to_numpy(float), both["value_second"].to_numpy(float))
    return both[[*IDENTITY, *_NETWORK, "chosen"]].assign(value=value)


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """The table with all columns, in order and of fixed types."""
    at = COLUMNS.index("learning_rate") + 1
    rows = rows.reindex(columns=[*COLUMNS[:at], "length", *COLUMNS[at:]])
    names = ("run", "dataset", "model", "defense", "length", "source", "variant", "metric", "status")
    text = dict.fromkeys(names, "str")
    real = dict.fromkeys(("level", "learning_rate", "value", "low", "high"), "float64")
    whole = dict.fromkeys(("rounds", "batch_size", "replica", "unit"), "int64")
    words = {name: rows[name].astype(object).fillna("") for name in ("variant", "status")}
    words["length"] = rows["length"].astype(object).fillna("full")
    rows = rows.assign(**words, unit=rows["unit"].fillna(_ALL))
    return rows.astype({**text, **real, **whole, "chosen": "bool"})
