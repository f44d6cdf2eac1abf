"""Recipes: every learning rate and stopping time of every defense, compared with those of plain SGD.

``recipes`` shows them all with the front of plain SGD. ``beyond`` shows how far the front of each defense
lies beyond it. A recipe is a run at one candidate rate. Comparisons are paired within a block, i.e. a replica
of one dataset and network.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from leakbound_lab.claims.recipe_fronts import LeakageAxis, PlainSGD, heights_above_plain, matched, recipes_of
from leakbound_lab.claims.selection import EmptySelectionError, select, select_or_nothing
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import handle, legend, settings_of, title_of
from leakbound_lab.figures.plots.plotting import canvas, plot
from leakbound_lab.figures.plots.series import center_interval, dots_of, epsilons, explained

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FRONT = "#555555"
_WITHOUT: dict[str, Any] = {"learning_rate": np.nan, "length": "full", "chosen": True}
"""Columns that a table may lack, with the values that they have then."""


class RecipesOptions(PlainSGD):
    """Options of the plots ``recipes`` and ``beyond``."""

    leakages: Annotated[dict[str, LeakageAxis], Field(min_length=1)]
    """Label of an axis, with unit, to its quantity. Each quantity has panels of its own."""


@plot(RecipesOptions)
def recipes(rows: pd.DataFrame, options: RecipesOptions) -> Figure:
    """Draw the mean over replicas of every recipe, and the front of plain SGD. Chosen recipes have intervals.

    Each replica has its own front. The line is their mean, and the band its 95 % interval.
    """
    rows = rows.assign(**{name: value for name, value in _WITHOUT.items() if name not in rows.columns})
    tables = {
        label: recipes_of(rows, leakage, options).assign(
            x=lambda table, least=leakage.nothing: table["x"].clip(least)
        )
        for label, leakage in options.leakages.items()
    }
    cells = [(label, setting) for label, table in tables.items() for setting in settings_of(table)]
    several = len(options.leakages) > 1 and len(cells) > len(options.leakages)
    columns = len(cells) // len(options.leakages) if several else min(style.panels_in_a_row(), len(cells))
    lines = -(-len(cells) // columns)
    wide = style.at_most(style.ONE_COLUMN if columns <= style.panels_in_a_row() else style.TWO_COLUMNS)
    figure = canvas(wide, 0.7 + lines * min(2.6, 0.25 + 0.85 * wide / columns))
    grid = figure.subplots(lines, columns, squeeze=False)
    for index, (axes, cell) in enumerate(zip_longest(grid.flat, cells)):
        if cell is None:
            axes.set_visible(False)
            continue
        label, where = cell
        _panel(axes, select(tables[label], where), options.leakages[label], options)
        if index < columns or not several:
            axes.set_title(title_of(where, [setting for _, setting in cells]), pad=3)
        if len(options.leakages) > 1 or index + columns >= len(cells):
            axes.set_xlabel(label)
    figure.supylabel("test accuracy", fontsize=style.FONT_SIZE)
    legend(figure, _handles(next(iter(tables.values())), options))
    return figure


@plot(RecipesOptions)
def beyond(rows: pd.DataFrame, options: RecipesOptions) -> Figure:
    """Draw how much more utility the front of each defense has than that of plain SGD at equal leakage.

    There is a row for each defense and a panel for each leakage and dataset, the first for all datasets
    together. A leakage along which no fronts overlap has no panels. Points are blocks. The mark is their mean
    with its 95 % interval, which needs at least four blocks.
    """
    import pandas as pd

    gains: dict[str, pd.DataFrame] = {}
    reasons: list[EmptySelectionError] = []
    for label, leakage in options.leakages.items():
        try:
            gains[label] = _gains(recipes_of(rows, leakage, options), leakage, options)
        except EmptySelectionError as error:  # e.g. fronts that do not overlap along this leakage
            reasons.append(error)
    if not gains:
        raise reasons[0]
    settings = settings_of(pd.concat(gains.values()))
    wanted = [({}, "all"), *((where, title_of(where, settings)) for where in settings)]
    wanted = wanted if len(settings) > 1 else wanted[1:]
    arms = style.ordered({arm for table in gains.values() for arm in table["defense"]})
    wide = min(style.TWO_COLUMNS, 1.9 + 1.5 * len(wanted))
    figure = canvas(wide, 0.45 + len(gains) * (0.45 + 0.2 * len(arms)))
    grid = figure.subplots(len(gains), len(wanted), sharey=True, sharex="row", squeeze=False)
    for axes, (_, title) in zip(grid[0], wanted, strict=True):
        axes.set_title(title, pad=3)
    for line, (label, table) in zip(grid, gains.items(), strict=True):
        for axes, (where, _) in zip(line, wanted, strict=True):
            _forest(axes, select_or_nothing(table, where), arms)
        line[0].set_ylabel(f"at equal\n{label}")
    figure.supxlabel("test accuracy beyond plain SGD's own front", fontsize=style.FONT_SIZE)
    return figure


def _gains(table: pd.DataFrame, leakage: LeakageAxis, options: RecipesOptions) -> pd.DataFrame:
    """Compute the distance of each defense beyond plain SGD in each block.

    Returns:
        Columns dataset, model, replica, defense and value.
    """
    import pandas as pd

    gains: list[pd.DataFrame] = []
    reasons: list[EmptySelectionError] = []
    for (dataset, model), block in table.groupby(["dataset", "model"], sort=True):
        for arm, points in block[~block["defense"].isin(options.plain)].groupby("defense", sort=True):
            try:
                values, _ = heights_above_plain(matched(block, points, options), leakage, options)
            except EmptySelectionError as error:
                reasons.append(error)
                continue
            values = values.rename_axis("replica").rename("value").reset_index()
            gains.append(values.assign(dataset=dataset, model=model, defense=arm))
    if not sum(map(len, gains)):
        raise reasons[0] if reasons else EmptySelectionError("no arm but those of plain SGD")
    return pd.concat(gains, ignore_index=True)


def _panel(axes: Axes, table: pd.DataFrame, leakage: LeakageAxis, options: RecipesOptions) -> None:
    """Draw the recipes of one dataset and network, and the front of plain SGD."""
    plain = table[table["defense"].isin(options.plain)]
    metrics = [str(where.get("metric", "")) for where in (leakage.where, options.utility)]
    for defense in style.ordered(table["defense"]):
        tried = table[table["defense"] == defense]
        appearance = style.style_of(defense)
        markers = {**appearance.line(), "ls": "none"}
        middles = tried.groupby(["run", "learning_rate", "length"], dropna=False)[["x", "y"]].mean()
        axes.plot(middles["x"], middles["y"], **markers, ms=2.6, mew=0.6, alpha=0.5)
        for _, recipe in tried[tried["chosen"].astype(bool)].groupby("run"):
            x, y = (
                center_interval(recipe[name], "mean", metric)
                for name, metric in zip("xy", metrics, strict=True)
            )
            if x.few:
                dots_of(axes, recipe[["x", "y"]].itertuples(index=False), appearance)
            else:
                xerr, yerr = (
                    [[middle.value - middle.low], [middle.high - middle.value]] for middle in (x, y)
                )
                lines: dict[str, Any] = {"fmt": "none", "ecolor": appearance.color, "lw": 0.6, "alpha": 0.6}
                axes.errorbar(x.value, y.value, yerr, xerr, **lines)
            edge = {"mec": "black", "mew": 0.6} if appearance.marker not in "+x1" else {"mew": 1.5}
            axes.plot(x.value, y.value, **markers, ms=6.0, zorder=4, **edge)
    if len(plain):
        _plain_front(axes, plain, leakage, options)
    axes.locator_params("x", nbins=5)
    axes.margins(0.06)


def _plain_front(axes: Axes, plain: pd.DataFrame, leakage: LeakageAxis, options: RecipesOptions) -> None:
    """Draw the mean over replicas of the fronts of plain SGD, and its 95 % interval."""
    import pandas as pd

    from leakbound_lab.claims.fronts import recipe_front

    guess = options.guess_on(str(plain["dataset"].iloc[0]), leakage)
    fronts = [
        recipe_front(group[["x", "y"]].to_numpy(float), guess)
        for _, group in plain.groupby("replica", sort=True)
    ]
    at = np.union1d(np.concatenate([x for x, _ in fronts]), [plain["x"].max()])
    heights = np.array([np.interp(at, x, y) for x, y in fronts])
    line = [
        center_interval(pd.Series(column), "mean", str(options.utility.get("metric", "")))
        for column in heights.T
    ]
    if not line[0].few:
        band = [middle.low for middle in line], [middle.high for middle in line]
        axes.fill_between(at, *band, color=_FRONT, alpha=0.16, lw=0, zorder=1)
    # Up to the first corner of all fronts there is nothing but a guess that is mixed in.
    first = min(x[1] if len(x) > 1 else x[0] for x, _ in fronts)
    for part, dashes in ((at <= first, (0, (2, 2))), (at >= first, "-")):
        heights_there = np.array([middle.value for middle in line])[part]
        axes.plot(at[part], heights_there, color=_FRONT, lw=1.1, ls=dashes, marker="none", zorder=2)
    axes.set_ylim(bottom=min(axes.get_ylim()[0], plain["y"].min()))


def _handles(table: pd.DataFrame, options: RecipesOptions) -> list[Any]:
    """Make the entries of the legend: the defenses with their levels and ε, and the front."""
    entries = []
    for defense in style.ordered(table["defense"]):
        tried = table[table["defense"] == defense]
        appearance = style.style_of(defense)
        levels = [style.level_label(defense, level) for level in sorted(tried["level"].dropna().unique())]
        entries.append(
            handle(
                explained(appearance.label, levels, epsilons(tried)), **{**appearance.line(), "ls": "none"}
            )
        )
    if table["defense"].isin(options.plain).any():
        front = "front of plain SGD (dashes: mixed with a guess)"
        entries.append(handle(front, color=_FRONT, lw=1.1, marker="none"))
    return entries


def _forest(axes: Axes, table: pd.DataFrame, arms: list[str]) -> None:
    """Draw a row for each defense: its blocks as small points, and their mean with its interval."""
    axes.axvline(0.0, color=style.CONTROL_COLOR, lw=0.8, zorder=1)
    for place, arm in enumerate(arms):
        values = table.loc[table["defense"] == arm, "value"]
        if values.empty:
            continue
        appearance = style.style_of(arm)
        middle = center_interval(values, "mean")
        beside = [place + 0.22] * len(values)
        axes.plot(values, beside, "|", color=appearance.color, ms=3, mew=0.6, alpha=0.6)
        if not middle.few:
            axes.plot([middle.low, middle.high], [place] * 2, color=appearance.color, lw=1.3, marker="none")
        axes.plot(middle.value, place, **{**appearance.line(), "ls": "none"}, ms=4.5)
    axes.set_yticks(range(len(arms)), [style.style_of(arm).label for arm in arms])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_ylim(len(arms) - 0.5, -0.5)
    axes.locator_params("x", nbins=4)
