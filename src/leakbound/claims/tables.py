"""Tidy tables: one row per run, replica, attack variant, unit and metric, and the quantities derived from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from leakbound import metrics
from leakbound.config.attacks import AttackConfig

IDENTITY = ("run", "dataset", "model", "defense", "level", "rounds", "batch_size")
"""Columns that tell runs apart."""
COLUMNS = (*IDENTITY, "replica", "source", "variant", "unit", "metric", "value", "low", "high")
SETTING = ("dataset", "model", "rounds", "batch_size")
SIMILARITIES = ("mse", "bounded_mse", "relative_mse", "psnr", "ssim", "cosine", "gain")
_ALL = -1
_OVER_UNITS = {name: attack.over_units for name, attack in AttackConfig().all().items() if attack.over_units}


@dataclass(frozen=True)
class RunResults:
    """Results of one run, named by its slug, as the table gathers them.

    Args:
        level: Capacity in nats or noise multiplier; None without a defense.
        rounds: Local optimisation steps.
        batch_size: Records in a step.
        diverged: True for each replica that diverged; empty if nothing was trained.
        curves: Columns replica, step, metric, value; None if nothing was trained.
        attacks: Attack name to its rows (replica, variant, unit, metric, value, low, high).
    """

    run: str
    dataset: str
    model: str
    defense: str
    level: float | None
    rounds: int
    batch_size: int
    diverged: tuple[bool, ...]
    curves: pd.DataFrame | None = None
    attacks: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def tabulate(runs: Iterable[RunResults], over_units: Mapping[str, str] = _OVER_UNITS) -> pd.DataFrame:
    """Put the results of runs, in any order, into one tidy table.

    A run adds the last value of each training metric (source ``training``; ``epsilon``, of one replica, has source
    ``accounting``, and so have the rows of :func:`accounting_rows` that are given with the attacks), its
    attacks' rows, and summaries over an attack's units with unit −1 as ``over_units`` has them: the median over classes
    of model inversion, the mean over images of gradient inversion. Source ``derived`` holds ``accuracy_gap``, training
    minus test accuracy, and for each replica of a run whose undefended counterpart (same setting) is in ``runs``:
    ``imp_mia``, ``imp_dra`` (with the harmonic mean of the undefended errors, so that the undefended replicas improve
    by 0 on average, as they do by ``imp_mia``) and ``gdc`` as printed, and ``imp_dra_gain`` and ``gdc_gain``, the same
    for an attacker who keeps the start of a class where the tuned inversion ends farther off: only gains over the start
    count. Replicas that diverged have no rows but ``diverged`` = 1.

    Returns:
        Table with the columns ``COLUMNS``, sorted, so that equal runs give equal tables.
    """
    frames = [frame for run in runs for frame in _run_frames(run, over_units)]
    if not frames:
        return _typed(pd.DataFrame(columns=list(COLUMNS)))
    rows = _typed(pd.concat(frames, ignore_index=True))
    rows = _typed(pd.concat([rows, *_improvements(rows)], ignore_index=True))
    order = ["dataset", "model", "rounds", "batch_size", "defense", "level", "replica", "source", "variant", "metric"]
    return rows.sort_values([*order, "unit"], kind="stable", na_position="first").reset_index(drop=True)


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
    return frame.assign(replica=_ALL, unit=_ALL, low=np.nan, high=np.nan)


def _run_frames(run: RunResults, over_units: Mapping[str, str]) -> list[pd.DataFrame]:
    """All rows of one run but the derived ones."""
    failed = [replica for replica, bad in enumerate(run.diverged) if bad]
    counted = pd.DataFrame(
        {"replica": range(len(run.diverged)), "metric": "diverged", "value": [float(bad) for bad in run.diverged]}
    )
    frames = [counted.assign(source="training")]
    if run.curves is not None and not run.curves.empty:
        last = run.curves.sort_values("step", kind="stable").groupby(["replica", "metric"], as_index=False).last()
        source = np.where(last["metric"] == "epsilon", "accounting", "training")
        frames.append(last[["replica", "metric", "value"]].assign(source=source))
    for name, attack in sorted(run.attacks.items()):
        frames.append(attack.assign(source=name))
        if how := over_units.get(name):
            units = attack[(attack["unit"] >= 0) & attack["metric"].isin(SIMILARITIES)]
            summary = units.groupby(["replica", "variant", "metric"])["value"].agg(how)
            frames.append(summary.reset_index().assign(unit=_ALL, source=name))
    identity = {column: getattr(run, column) for column in IDENTITY}
    kept = [frames[0], *(frame[~frame["replica"].isin(failed)] for frame in frames[1:])]
    return [frame.assign(**identity) for frame in kept if not frame.empty]


def _improvements(rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Improvements over the undefended run, replica by replica, and the gap that membership inference lives on."""
    aucs = _per_replica(rows, "membership", "white_box", "auc")
    errors = _per_replica(rows, "model_inversion", "printed", "mse")
    train, test = (_per_replica(rows, "training", "", metric) for metric in ("train_accuracy", "test_accuracy"))
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


def _per_replica(rows: pd.DataFrame, source: str, variant: str, metric: str) -> pd.DataFrame:
    """The rows of one summary metric: identity, replica and value."""
    chosen = (rows["source"] == source) & (rows["variant"] == variant) & (rows["metric"] == metric)
    return rows[chosen & (rows["unit"] == _ALL)][[*IDENTITY, "replica", "value"]]


def _bounded_errors(rows: pd.DataFrame) -> pd.DataFrame:
    """MSE of the tuned model inversion or of its start, whichever is lower in a class: median over classes."""
    chosen = (rows["source"] == "model_inversion") & (rows["metric"] == "mse") & (rows["unit"] != _ALL)
    start, tuned = (rows[chosen & (rows["variant"] == variant)] for variant in ("start", "tuned"))
    unit = ["run", "replica", "unit"]
    both = tuned.merge(start[[*unit, "value"]], on=unit, suffixes=("", "_start"))
    both["value"] = both[["value", "value_start"]].min(axis=1)
    return both.groupby([*IDENTITY, "replica"], as_index=False, dropna=False)["value"].median()


def _improvement(
    rows: pd.DataFrame,
    formula: Callable[[Any, Any], Any],
    average: Callable[[pd.Series[float]], float] = pd.Series.mean,
) -> pd.DataFrame:
    """``formula`` of each replica's value and the average of the undefended replicas of the same setting."""
    undefended = rows[rows["defense"] == "none"].groupby(list(SETTING))["value"].agg(average).rename("reference")
    joined = rows.merge(undefended.reset_index(), on=list(SETTING))
    value = formula(joined["value"].to_numpy(float), joined["reference"].to_numpy(float))
    return joined.assign(value=value).drop(columns="reference")


def _harmonic_mean(errors: pd.Series[float]) -> float:
    """The reference against which replicas with these errors improve by nothing on average: IMP_DRA divides by MSE."""
    return 1.0 / float((1.0 / errors).mean())


def _joined(first: pd.DataFrame, second: pd.DataFrame, formula: Callable[[Any, Any], Any]) -> pd.DataFrame:
    """``formula`` of both values of each replica that has them."""
    both = first.merge(second[["run", "replica", "value"]], on=["run", "replica"], suffixes=("", "_second"))
    value = formula(both["value"].to_numpy(float), both["value_second"].to_numpy(float))
    return both[[*IDENTITY, "replica"]].assign(value=value)


def _typed(rows: pd.DataFrame) -> pd.DataFrame:
    """The table with all columns, in order and of fixed types."""
    rows = rows.reindex(columns=list(COLUMNS))
    text = dict.fromkeys(("run", "dataset", "model", "defense", "source", "variant", "metric"), "str")
    real = dict.fromkeys(("level", "value", "low", "high"), "float64")
    whole = dict.fromkeys(("rounds", "batch_size", "replica", "unit"), "int64")
    rows = rows.assign(variant=rows["variant"].astype(object).fillna(""), unit=rows["unit"].fillna(_ALL))
    return rows.astype({**text, **real, **whole})
