"""Tidy tables: one row per run, replica, variant, unit and metric, and quantities derived from these rows."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from leakbound.claims.improvements import ALL, IDENTITY, NETWORK, improvements
from leakbound.config.attacks import AttackConfig

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
        rates: A row for each replica and candidate learning rate, as :mod:`leakbound.training.rates` makes
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
    training minus test accuracy. If the undefended counterpart of a run (same setting) is in ``runs``, it
    also contains improvements over the undefended networks at their chosen rates, for each replica.
    ``imp_mia``, ``imp_dra`` and ``gdc`` are as printed. ``imp_dra`` uses the harmonic mean of the undefended
    errors, so that the undefended replicas improve by 0 on average, as they do by ``imp_mia``.
    ``imp_dra_gain`` and ``gdc_gain`` count only gains over the start: they assume an attacker who keeps the
    start of a class if the tuned inversion ends farther off.

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
    order = [
        "dataset",
        "model",
        "rounds",
        "batch_size",
        "defense",
        "level",
        *NETWORK,
        "source",
        "variant",
        "metric",
    ]
    rows = rows.sort_values([*order, "unit"], kind="stable", na_position="first").reset_index(drop=True)
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
        if metric not in ("uses", "delta", "accountant", "stated")
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
