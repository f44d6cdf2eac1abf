"""Planes of two quantities as values: one for each dataset and network, a point for each run, its seeds inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from leakbound.claims.selection import EmptySelectionError, select
from leakbound.config.catalogue import FigureConfig
from leakbound.figures import style

_NEEDED = ("run", "dataset", "model", "defense", "level", "rounds", "batch_size", "replica", "metric", "value")


@dataclass(frozen=True)
class Seed:
    """Both quantities of one replica."""

    replica: int
    x: float
    y: float


@dataclass(frozen=True)
class Point:
    """Both quantities of one run.

    Attributes:
        run: Slug.
        defense: Name of the defense.
        name: What tells it from the others of its line: a level, or a number of rounds; empty without one.
        x: Mean over the replicas that have both quantities.
        y: The same.
        seeds: Those replicas.
    """

    run: str
    defense: str
    name: str
    x: float
    y: float
    seeds: tuple[Seed, ...]


@dataclass(frozen=True)
class Plane:
    """Runs of one dataset and network between two quantities.

    Attributes:
        figure: ``paper/id`` of the figure that shows the same.
        title: The figure's.
        dataset: Name of the dataset.
        model: Name of the network.
        x_label: Label of the x axis, with unit.
        y_label: Label of the y axis, with unit.
        lines: Points by defense, in the order of legends; those of a defense along its levels.
        start: Where along x the attack starts, if the figure shows it.
        diagonal: Whether equal x and y mean something.
    """

    figure: str
    title: str
    dataset: str
    model: str
    x_label: str
    y_label: str
    lines: tuple[tuple[Point, ...], ...]
    start: float | None = None
    diagonal: bool = False

    @property
    def points(self) -> list[Point]:
        """All points, line after line."""
        return [point for line in self.lines for point in line]


def planes(figure: FigureConfig, rows: pd.DataFrame) -> list[Plane]:
    """The planes that a figure consists of.

    Args:
        figure: Entry of the catalogue.
        rows: The rows it shows.

    Returns:
        One plane for each dataset and network that has runs with both quantities; none if the figure is no plane.
    """
    if figure.plot != "plane" or not set(_NEEDED) <= set(rows.columns):
        return []
    options = figure.options
    rows = rows[np.isfinite(rows["value"].to_numpy(float))]
    try:
        rows = select(rows, options.get("where", {}))
        x, y = (select(rows, options[axis]) for axis in ("x", "y"))
    except EmptySelectionError:
        return []
    labels = {
        axis: options.get(f"{axis}_label") or style.axis_label(str(chosen["metric"].iloc[0]))
        for axis, chosen in (("x", x), ("y", y))
    }
    pairs = _pairs(x, y)
    found = []
    for (dataset, model), own in pairs.groupby(["dataset", "model"], sort=True):
        here = rows[(rows["dataset"] == dataset) & (rows["model"] == model)]
        found.append(
            Plane(
                figure=f"{figure.paper}/{figure.id}",
                title=figure.title,
                dataset=str(dataset),
                model=str(model),
                x_label=labels["x"],
                y_label=labels["y"],
                lines=tuple(_lines(own, options.get("along", "level"))),
                start=_start(here, options.get("start")),
                diagonal=bool(options.get("diagonal", False)),
            )
        )
    return found


def _pairs(x: pd.DataFrame, y: pd.DataFrame) -> pd.DataFrame:
    """Replicas that have both quantities, in columns ``x`` and ``y``."""
    keys = ["run", "dataset", "model", "defense", "level", "rounds", "batch_size", "replica"]
    sides = [
        side.groupby(keys, dropna=False, as_index=False)["value"].mean().rename(columns={"value": axis})
        for axis, side in (("x", x), ("y", y))
    ]
    return sides[0].merge(sides[1], on=keys)


def _lines(pairs: pd.DataFrame, along: str) -> Iterator[tuple[Point, ...]]:
    """Points of each defense, ordered along a column."""
    for defense in style.ordered({str(name) for name in pairs["defense"].unique()}):
        own = pairs[pairs["defense"] == defense]
        groups = sorted((group for _, group in own.groupby("run")), key=lambda group: group[along].iloc[0])
        yield tuple(_point(group, along) for group in groups)


def _point(group: pd.DataFrame, along: str) -> Point:
    """The point of one run."""
    value = group[along].iloc[0]
    pairs = group.sort_values("replica")[["replica", "x", "y"]].itertuples(index=False)
    return Point(
        run=str(group["run"].iloc[0]),
        defense=str(group["defense"].iloc[0]),
        name="" if pd.isna(value) else f"{value:g}",
        x=float(group["x"].mean()),
        y=float(group["y"].mean()),
        seeds=tuple(Seed(int(replica), float(x), float(y)) for replica, x, y in pairs),
    )


def _start(rows: pd.DataFrame, conditions: Mapping[str, Any] | None) -> float | None:
    """Mean of the rows that meet the conditions."""
    if conditions is None:
        return None
    try:
        return float(select(rows, conditions)["value"].mean())
    except EmptySelectionError:
        return None
