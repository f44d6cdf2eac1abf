"""Series of a figure: their rows, their styles, and the drawing of their means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from leakbound_lab.claims.selection import SelectionError, select_or_nothing
from leakbound_lab.claims.statistics import mean_interval, median_interval
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.defenses import level_text
from leakbound_lab.config.series_style import SeriesStyle
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Center = Literal["mean", "median"]
"""Middle of replicas. The median is for metrics without a lower bound, where one replica could dominate the
mean."""

FEWEST = 4
"""Smallest number of replicas with an interval. Fewer are drawn one by one, because the interval would be
huge."""

DASHES = ((5.0, 2.0), (1.5, 1.5), (5.0, 1.5, 1.0, 1.5), (3.0, 1.2, 1.0, 1.2, 1.0, 1.2))
"""Dashes of the control lines of a figure, in order."""

_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Markers of lines that numbers distinguish, in the order of these."""


class Control(Settings):
    """Rows that are drawn as a grey dashed line for comparison."""

    label: str
    """Name of the line."""
    where: Conditions
    """Conditions of the rows of the control."""


class Middle(NamedTuple):
    """Middle of replicas, with a 95 % interval or, for few replicas, their range."""

    value: float
    low: float
    high: float
    few: bool


@dataclass(frozen=True)
class Series:
    """One line: its values in the columns that distinguish lines, and its style."""

    values: dict[str, str]
    style: SeriesStyle

    def of(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Choose its rows, which may be none."""
        return select_or_nothing(rows, self.values)


def with_names(rows: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Write the numbers in columns that distinguish lines, e.g. levels, as their names. A missing one has none."""
    from pandas.api.types import is_numeric_dtype

    renamed = rows.copy()
    for column in columns:
        if is_numeric_dtype(rows[column]):
            renamed[column] = ["" if np.isnan(number) else level_text(number) for number in rows[column]]
    return renamed


def series_of(rows: pd.DataFrame, columns: Sequence[str]) -> list[Series]:
    """Split rows into lines, in the order of legends.

    Only columns that vary distinguish lines. If none does, the first column gives the style. The first column
    that varies gives colour and marker, so that a defense, or else a model, has one style in all figures. A
    second column that varies replaces the marker, and its lines are dashed except for its first value, unless its
    values are numbers, see :func:`with_names`.
    """
    varying = [column for column in columns if rows[column].nunique() > 1] or list(columns[:1])
    ranks = {column: ranked({str(value) for value in rows[column].unique()}) for column in varying}
    combinations = {
        tuple(str(value) for value in line)
        for line in rows[varying].drop_duplicates().itertuples(index=False)
    }
    ordered = sorted(
        combinations, key=lambda line: [ranks[c].index(v) for c, v in zip(varying, line, strict=True)]
    )
    return [
        Series(dict(zip(varying, line, strict=True)), _style(line, list(ranks.values()))) for line in ordered
    ]


def ranked(names: set[str]) -> list[str]:
    """Sort the values of a column in the order of legends, numbers by their size."""
    if all(_is_number(name) for name in names):
        return sorted(names, key=lambda name: float(name or -np.inf))
    return style.ordered(names, style.NAMES) if names <= set(style.NAMES) else style.ordered(names)


def center_interval(values: pd.Series[float], center: Center, metric: str = "") -> Middle:
    """Estimate the mean or median over replicas with its 95 % interval, clipped to the range of the metric."""
    estimate = {"mean": mean_interval, "median": median_interval}[center](values.to_numpy(float))
    if few := len(values) < FEWEST:
        return Middle(estimate.value, float(values.min()), float(values.max()), few)
    low, high = np.clip([estimate.low, estimate.high], *style.bounds(metric))
    return Middle(estimate.value, float(low), float(high), few)


def epsilons(rows: pd.DataFrame, along: str = "level", *, descending: bool = False) -> str:
    """Write the ε of a series in the order of its points, e.g. ``ε = 41, 392``, or nothing if it has none."""
    if "epsilon" not in rows.columns:
        return ""
    stated = rows.dropna(subset=["epsilon"])[[along, "epsilon"]]
    ranges = stated.groupby(along)["epsilon"].agg(["min", "max"]).sort_index(ascending=not descending)
    texts = [
        "–".join(dict.fromkeys(map(style.epsilon_text, ends))) for ends in ranges.itertuples(index=False)
    ]
    return f"ε = {', '.join(texts)}" if texts else ""


def explained(label: str, points: Sequence[str], budgets: str) -> str:
    """Write an entry of the legend: a series with the names of its points and its ε, if it has any."""
    inside = "; ".join(filter(None, (", ".join(filter(None, points)), budgets)))
    return f"{label} ({inside})" if inside else label


def mean_line(
    axes: Axes,
    rows: pd.DataFrame,
    x: str,
    appearance: SeriesStyle,
    *,
    band: float | None = 0.16,
    **changes: Any,
) -> pd.DataFrame:
    """Draw the mean over replicas along a column, with its 95 % interval, or with each replica if they are few.

    Args:
        axes: Panel to draw on.
        rows: Rows of the line.
        x: Column along x.
        appearance: Style of the line.
        band: Opacity of the interval. If None, neither interval nor replicas are drawn.
        **changes: Arguments of ``Axes.plot`` that replace those of the style.

    Returns:
        Columns x, middle, low and high, as drawn.

    Raises:
        SelectionError: If a replica has several rows at one place.
    """
    import pandas as pd

    if "replica" in rows.columns and rows.duplicated([x, "replica"]).any():
        ignored = {x, "replica", "value", "run", "low", "high", "epsilon"}
        same = next(group for _, group in rows.groupby([x, "replica"]) if len(group) > 1)
        several = [column for column in same if column not in ignored and same[column].nunique() > 1]
        varying = [f"{column} ({', '.join(map(str, same[column].unique()))})" for column in several]
        raise SelectionError(
            f"a replica has several rows at one {x}: choose one by {', '.join(varying) or 'a column'}"
        )
    groups = {value: group["value"] for value, group in rows.groupby(x, sort=True)}
    middles = [(value, *center_interval(group, "mean", metric_of(rows))) for value, group in groups.items()]
    line = pd.DataFrame(middles, columns=[x, "middle", "low", "high", "few"])
    if band is not None and not line["few"].all():
        ends = line[["low", "high"]].where(~line["few"])
        axes.fill_between(line[x], ends["low"], ends["high"], color=appearance.color, alpha=band, lw=0)
    if band is not None:
        every = changes.get("markevery", 1)
        start, step = every if isinstance(every, tuple) else (0, every)
        places = line[line["few"]].iloc[start::step][x]
        dots_of(
            axes,
            [(float(place), value) for place in places for value in groups[place] if len(groups[place]) > 1],
            appearance,
        )
    axes.plot(line[x], line["middle"], **{**appearance.line(), "zorder": 3, **changes})
    return line


def dots_of(axes: Axes, points: Iterable[Iterable[float]], appearance: SeriesStyle) -> None:
    """Draw single replicas as dots."""
    if places := sorted(map(tuple, points)):  # in one order, independent of that of the rows
        x, y = np.transpose(places)
        axes.plot(x, y, "o", ms=2.4, mew=0, color=appearance.color, alpha=0.7, zorder=2)


def mark_leaving(axes: Axes, x: Middle, y: Middle, color: str) -> None:
    """Draw an open triangle at the frame where an interval or a replica lies beyond the limits of a panel."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    for beyond, place, marker in (
        (x.low < left, (left, y.value), "<"),
        (x.high > right, (right, y.value), ">"),
        (y.low < bottom, (x.value, bottom), "v"),
        (y.high > top, (x.value, top), "^"),
    ):
        if beyond:
            axes.plot(*place, marker=marker, ms=4.0, mfc="white", mec=color, mew=0.8, clip_on=False, zorder=6)


def metric_of(rows: pd.DataFrame) -> str:
    """Return the metric of rows, empty if they have several or none."""
    names = rows["metric"].unique() if "metric" in rows.columns else []
    return str(names[0]) if len(names) == 1 else ""


def _style(values: tuple[str, ...], ranks: list[list[str]]) -> SeriesStyle:
    """Compose the style of a line from those of its values."""
    first, *rest = (style.style_of(value) for value in values)
    if not rest:
        return first
    label = ", ".join(filter(None, [first.label, *(other.label for other in rest)]))
    if all(_is_number(name) for name in ranks[1]):
        return SeriesStyle(
            label, first.color, _MARKERS[ranks[1].index(values[1]) % len(_MARKERS)], first.dashed
        )
    later = any(value != names[0] for value, names in zip(values[1:], ranks[1:], strict=True))
    return SeriesStyle(label, first.color, rest[0].marker, first.dashed or later)


def _is_number(name: str) -> bool:
    """Return True for the name of a number, or of none, as :func:`with_names` writes them."""
    try:
        float(name or 0)
    except ValueError:
        return False
    return True
