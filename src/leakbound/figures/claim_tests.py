"""The tests that claims name: each takes a figure's rows and says how far they speak for the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from scipy import stats

from leakbound import metrics
from leakbound.config import Settings
from leakbound.figures import statistics
from leakbound.figures.claim_options import Association, Difference, Front, Identity, Order, Trend
from leakbound.figures.options import Conditions, parse
from leakbound.figures.selection import SelectionError, select
from leakbound.registry import nearest

T = TypeVar("T", bound=Settings)
MULTIPLIER_DEFENSES = ("dpsgd", "dppsac")


@dataclass(frozen=True)
class Outcome:
    """What a test found.

    Args:
        effect: Effect size; its meaning is the test's.
        low: Lower end of its 95 % interval, NaN if there is none.
        high: Upper end.
        p_value: Two-sided; 0 or 1 for an exact statement; NaN if there are too few replicas to test.
        direction: 1 if the effect goes the claimed way, −1 if the opposite way, 0 if neither.
        replicas: Least number of replicas in a group.
        detail: What was compared, or why nothing could be.
        exact: Whether the statement holds or fails without any chance.
        smallest_p: Number of replicas to the least p-value that the test could give with so many.
    """

    effect: float
    low: float
    high: float
    p_value: float
    direction: int
    replicas: int
    detail: str
    exact: bool = False
    smallest_p: Callable[[int], float] = lambda replicas: 0.0


@dataclass(frozen=True)
class ClaimTest(Generic[T]):
    """A test with its declared options; called with rows, plain options and a generator."""

    name: str
    settings: type[T]
    run: Callable[[pd.DataFrame, T, np.random.Generator], Outcome]

    def check(self, options: Mapping[str, Any]) -> T:
        """The options, or an OptionsError with every mistake in them."""
        return parse(self.settings, options, f"claim test {self.name}")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any], generator: np.random.Generator) -> Outcome:
        """Test one setting's rows.

        Raises:
            OptionsError: If an option is wrong.
            SelectionError: If a condition names an unknown column or chooses no row.
        """
        return self.run(rows, self.check(options), generator)


def _trend(sign: int, rows: pd.DataFrame, options: Trend, generator: np.random.Generator) -> Outcome:
    """Jonckheere–Terpstra along a column; the effect is the share of ascending minus descending pairs."""
    rows = select(rows, options.where)
    _require(rows, (options.by, *options.within, "value"))
    strata = [
        [group["value"].to_numpy(float) for _, group in stratum.groupby(options.by, sort=True)]
        for stratum in _split(rows, options.within).values()
    ]
    if options.exact:
        if any(len(group) != 1 for stratum in strata for group in stratum):
            raise SelectionError(f"an exact trend along {options.by} needs one row for each of its values")
        steps = sign * np.concatenate([np.diff(np.concatenate(stratum)) for stratum in strata])
        return _exact_outcome(steps, f"{len(steps)} steps along {options.by}")
    strata = [stratum for stratum in strata if len(stratum) > 1]
    if not strata:
        return _undecidable(rows, f"only one value of {options.by}: no trend to see")
    sizes = [[len(group) for group in stratum] for stratum in strata]
    replicas = min(min(groups) for groups in sizes)
    tested = statistics.jonckheere(strata, generator)
    effect = statistics.trend_effect([[group[None, :] for group in stratum] for stratum in strata]).item()
    low = high = math.nan
    if replicas > 1:
        draws = [[statistics.resampled(group, generator) for group in stratum] for stratum in strata]
        low, high = statistics.percentile_interval(statistics.trend_effect(draws))
    return Outcome(
        effect,
        low,
        high,
        tested.p_value,
        sign * tested.direction,
        replicas,
        f"Jonckheere–Terpstra over {max(len(groups) for groups in sizes)} values of {options.by}; effect: "
        "ascending minus descending share of pairs",
        smallest_p=lambda n: statistics.smallest_trend_p([[n] * len(groups) for groups in sizes]),
    )


def _ordered(rows: pd.DataFrame, options: Order, generator: np.random.Generator) -> Outcome:
    """Jonckheere–Terpstra across series, stratified by what must match."""
    rows = _with_strength(select(rows, options.where))
    series = [_split(select(rows, conditions), options.match) for conditions in options.series]
    shared = [key for key in series[0] if all(key in groups for groups in series)]
    if not shared:
        return _undecidable(rows, f"the series share no {', '.join(options.match)}")
    strata = [[groups[key]["value"].to_numpy(float) for groups in series] for key in shared]
    sizes = [[len(group) for group in stratum] for stratum in strata]
    tested = statistics.jonckheere(strata, generator)
    effect = statistics.trend_effect([[group[None, :] for group in stratum] for stratum in strata]).item()
    draws = [[statistics.resampled(group, generator) for group in stratum] for stratum in strata]
    low, high = statistics.percentile_interval(statistics.trend_effect(draws))
    return Outcome(
        effect,
        low,
        high,
        tested.p_value,
        tested.direction,
        min(min(groups) for groups in sizes),
        f"Jonckheere–Terpstra over {len(series)} series, {len(strata)} strata; effect: ascending minus descending "
        "share of pairs",
        smallest_p=lambda n: statistics.smallest_trend_p([[n] * len(groups) for groups in sizes]),
    )


def _greater(rows: pd.DataFrame, options: Difference, generator: np.random.Generator) -> Outcome:
    """Permutation test of a mean difference at matched levels; the effect is that difference."""
    rows = _with_strength(select(rows, options.where))
    first, second = _matched(rows, options)
    if not first:
        return _undecidable(rows, f"both series share no {', '.join(options.match)}")
    if options.exact:
        return _exact_outcome(np.concatenate(_differences(first, second)) - options.margin, f"{len(first)} comparisons")
    chosen = [select(rows, conditions) for conditions in (options.a, options.b) if conditions is not None]
    replicas = min(int(series.groupby("run")["replica"].nunique().min()) for series in chosen)
    if options.paired or options.value is not None:
        differences = _differences(first, second)
        shifted = np.concatenate(differences) - options.margin
        tested = statistics.paired_greater(shifted, generator)
        draws = np.mean([statistics.resampled(group, generator).mean(axis=1) for group in differences], axis=0)
        smallest = partial(_smallest_sign_p, strata=len(differences))
        what = f"sign-flip test over {len(shifted)} pairs"
    else:
        strata = [(a - options.margin, b) for a, b in zip(first, second, strict=True)]
        tested = statistics.greater(strata, generator)
        ratios = [(len(a) / replicas, len(b) / replicas) for a, b in strata]
        draws = np.mean(
            [
                statistics.resampled(a, generator).mean(axis=1) - statistics.resampled(b, generator).mean(axis=1)
                for a, b in zip(first, second, strict=True)
            ],
            axis=0,
        )
        smallest = partial(_smallest_split_p, ratios=ratios)
        what = f"permutation test, stratified over {len(strata)} matched levels"
    low, high = statistics.percentile_interval(draws) if replicas > 1 else (math.nan, math.nan)
    margin = f", margin {options.margin:g}" if options.margin else ""
    return Outcome(
        tested.statistic + options.margin,
        low,
        high,
        tested.p_value,
        tested.direction,
        replicas,
        f"{what}{margin}; effect: mean difference",
        smallest_p=smallest,
    )


def _equals(rows: pd.DataFrame, options: Identity, generator: np.random.Generator) -> Outcome:
    """Largest relative difference of two closed forms."""
    rows = _with_strength(select(rows, options.where))
    first, second = _matched(rows, options)
    if not first:
        return _undecidable(rows, f"both series share no {', '.join(options.match)}")
    gaps = np.abs(np.concatenate(_differences(first, second)))
    scale = np.abs(np.concatenate([np.broadcast_to(b, a.shape) for a, b in zip(first, second, strict=True)]))
    worst = float((gaps / np.maximum(scale, 1e-300)).max())
    holds = worst <= options.tolerance
    detail = f"exact: largest relative difference {worst:.3g}, allowed {options.tolerance:g}"
    return Outcome(worst, math.nan, math.nan, 0.0 if holds else 1.0, 1 if holds else -1, 1, detail, exact=True)


def _associated(sign: int, rows: pd.DataFrame, options: Association, generator: np.random.Generator) -> Outcome:
    """Kendall's τ between two quantities over levels and replicas."""
    both = _both(select(rows, options.where), options.x, options.y)
    x, y = both["x"].to_numpy(float), both["y"].to_numpy(float)
    replicas = int(both.groupby("run").size().min()) if len(both) else 0
    if len(both) < 4 or len(np.unique(x)) < 2 or len(np.unique(y)) < 2:
        return _undecidable(rows, f"{len(both)} replicas with different values of both: too few to see a relation")
    effect, p_value = stats.kendalltau(x, y)
    low, high = statistics.percentile_interval(_tau_draws(x, y, generator))
    runs = both["run"].nunique()
    return Outcome(
        float(effect),
        low,
        high,
        float(p_value),
        sign * int(np.sign(effect)),
        replicas,
        f"Kendall's τ over {len(both)} replicas of {runs} runs",
        smallest_p=lambda n: min(1.0, 2 * math.exp(-math.lgamma(n * runs + 1))),
    )


def _front(rows: pd.DataFrame, options: Front, generator: np.random.Generator) -> Outcome:
    """Hypervolume of one front minus each other's, with the bootstrap's error; the effect is the least difference."""
    both = _both(select(rows, options.where), options.x, options.y).dropna(subset="level")
    _require(both, ("defense",))
    fronts = {
        str(name): [level[["x", "y"]].to_numpy(float) for _, level in series.groupby("level", sort=True)]
        for name, series in both.groupby("defense", sort=True)
    }
    others = [name for name in options.against or fronts if name != options.best and name in fronts]
    if options.best not in fronts or not others:
        return _undecidable(rows, f"{options.best} and something to compare it with must both be in the rows")
    compared = {name: fronts[name] for name in (options.best, *others)}
    replicas = min(len(level) for front in compared.values() for level in front)
    corner = np.array(options.reference)
    volume = {
        name: metrics.hypervolume(np.array([level.mean(axis=0) for level in front]), corner)
        for name, front in compared.items()
    }
    if replicas < 2:
        return _undecidable(rows, f"{replicas} replica: a front needs at least 2 to be compared")
    draws = {name: _resampled_volumes(front, corner, generator) for name, front in compared.items()}
    results = {
        name: statistics.bootstrap_t(volume[options.best] - volume[name], draws[options.best] - draws[name], replicas)
        for name in others
    }
    beaten_by = [name for name, (tested, _, _) in results.items() if tested.direction < 0]
    if beaten_by:
        decisive = min(beaten_by, key=lambda name: results[name][0].p_value)
        p_value = min(1.0, results[decisive][0].p_value * len(others))
    else:
        decisive = max(results, key=lambda name: results[name][0].p_value)
        p_value = results[decisive][0].p_value
    tested, low, high = results[decisive]
    listed = ", ".join(f"{name} {value:.4g}" for name, value in volume.items())
    detail = f"hypervolumes {listed}; effect: {options.best} minus {decisive}; bootstrap error, Student's t"
    return Outcome(tested.statistic, low, high, p_value, tested.direction, replicas, detail)


def _require(rows: pd.DataFrame, columns: Iterable[str]) -> None:
    """Refuse a table that lacks one of the columns a test needs."""
    for column in columns:
        if column not in rows.columns:
            known = nearest(column, [str(name) for name in rows.columns])
            raise SelectionError(f"a claim test needs the column {column!r}; {known}")


def _replicas(rows: pd.DataFrame) -> int:
    """Number of replicas in a table."""
    return int(rows["replica"].nunique()) if "replica" in rows.columns else 1


def _undecidable(rows: pd.DataFrame, reason: str) -> Outcome:
    """Outcome of a test that could not be made."""
    return Outcome(math.nan, math.nan, math.nan, math.nan, 0, _replicas(rows), reason)


def _exact_outcome(steps: np.ndarray, what: str) -> Outcome:
    """Outcome of a statement without chance: it holds where every step is positive."""
    holds = bool((steps > 0).all())
    detail = f"exact: {what}, " + ("all as claimed" if holds else f"{int((steps <= 0).sum())} against the claim")
    effect = float(steps.min()) if len(steps) else math.nan
    return Outcome(effect, math.nan, math.nan, 0.0 if holds else 1.0, 1 if holds else -1, 1, detail, exact=True)


def _split(rows: pd.DataFrame, columns: Iterable[str]) -> dict[tuple[Hashable, ...], pd.DataFrame]:
    """Rows by their values in ``columns``, a missing value being one like any other."""
    columns = list(columns)
    _require(rows, columns)
    if not columns:
        return {(): rows}
    groups = rows.groupby(columns, sort=True, dropna=False)
    return {tuple(None if pd.isna(part) else part for part in key): group for key, group in groups}


def _with_strength(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the rank of their level among their defense's levels, the strongest first.

    A small capacity protects most, and so does a large noise multiplier.
    """
    if not {"defense", "level"} <= set(rows.columns):
        return rows
    signed = rows["level"].where(~rows["defense"].isin(MULTIPLIER_DEFENSES), -rows["level"])
    return rows.assign(strength=signed.groupby(rows["defense"]).rank(method="dense"))


def _matched(rows: pd.DataFrame, options: Difference) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Values of both series, match by match; in the order of the replicas where these are paired."""
    match = (*options.match, "replica") if options.paired else options.match
    first = _split(select(rows, options.a), match)
    if options.value is not None:
        constant = np.array([options.value])
        groups = [group["value"].to_numpy(float) for group in first.values()]
        return groups, [constant] * len(groups)
    second = _split(select(rows, options.b or {}), match)
    shared = [key for key in first if key in second]
    pairs = [(first[key]["value"].to_numpy(float), second[key]["value"].to_numpy(float)) for key in shared]
    if options.exact:
        return [np.array([a.mean()]) for a, _ in pairs], [np.array([b.mean()]) for _, b in pairs]
    if options.paired:
        if any(len(a) != 1 or len(b) != 1 for a, b in pairs):
            raise SelectionError(f"more than one row of a series has the same {', '.join(match)}: choose one")
        keys = [key[:-1] for key in shared]
        order = {key: [index for index, other in enumerate(keys) if other == key] for key in keys}
        return (
            [np.concatenate([pairs[index][0] for index in indices]) for indices in order.values()],
            [np.concatenate([pairs[index][1] for index in indices]) for indices in order.values()],
        )
    return [a for a, _ in pairs], [b for _, b in pairs]


def _differences(first: list[np.ndarray], second: list[np.ndarray]) -> list[np.ndarray]:
    """First minus second, match by match; a single second value serves all first ones."""
    return [a - b for a, b in zip(first, second, strict=True)]


def _smallest_sign_p(replicas: int, strata: int) -> float:
    """Least two-sided p-value of a sign-flip test over ``strata`` times ``replicas`` pairs."""
    return min(1.0, 2.0 * 0.5 ** (replicas * strata))


def _smallest_split_p(replicas: int, ratios: list[tuple[float, float]]) -> float:
    """Least two-sided p-value of the permutation test if every sample grows in proportion."""
    return statistics.smallest_difference_p([(round(a * replicas), round(b * replicas)) for a, b in ratios])


def _both(rows: pd.DataFrame, x: Conditions, y: Conditions) -> pd.DataFrame:
    """One row per run and replica that has both quantities, as columns x and y."""
    _require(rows, ("run", "replica", "value"))
    first, second = select(rows, x), select(rows, y)
    for chosen, name in ((first, "x"), (second, "y")):
        if chosen.duplicated(["run", "replica"]).any():
            raise SelectionError(f"the conditions of {name} choose several rows of one replica: choose one")
    return first.rename(columns={"value": "x"}).merge(
        second[["run", "replica", "value"]].rename(columns={"value": "y"}), on=["run", "replica"]
    )


def _tau_draws(x: np.ndarray, y: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Kendall's τ of resampled pairs; 0 where a resample has no spread."""
    first, second = (np.sign(values[:, None] - values[None, :]) for values in (x, y))
    draws = np.zeros(statistics.RESAMPLES)
    for draw, index in enumerate(generator.integers(len(x), size=(statistics.RESAMPLES, len(x)))):
        a, b = first[np.ix_(index, index)], second[np.ix_(index, index)]
        spread = math.sqrt((a * a).sum() * (b * b).sum())
        draws[draw] = (a * b).sum() / spread if spread else 0.0
    return draws


def _resampled_volumes(levels: list[np.ndarray], corner: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Hypervolumes of a front whose replicas are resampled level by level."""
    means = [
        level[generator.integers(len(level), size=(statistics.RESAMPLES, len(level)))].mean(axis=1) for level in levels
    ]
    return np.array([metrics.hypervolume(points, corner) for points in np.stack(means, axis=1)])


increasing = ClaimTest("increasing", Trend, partial(_trend, 1))
decreasing = ClaimTest("decreasing", Trend, partial(_trend, -1))
ordered = ClaimTest("ordered", Order, _ordered)
greater = ClaimTest("greater", Difference, _greater)
equals = ClaimTest("equals", Identity, _equals)
concordant = ClaimTest("concordant", Association, partial(_associated, 1))
discordant = ClaimTest("discordant", Association, partial(_associated, -1))
front = ClaimTest("front", Front, _front)
