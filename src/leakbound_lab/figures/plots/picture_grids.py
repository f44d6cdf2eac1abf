"""Grids of pictures, and maps of pixels."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from leakbound.words import in_nats
from leakbound_lab.claims.selection import EmptySelectionError, SelectionError, require, select
from leakbound_lab.config.series_style import SeriesStyle
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import bare, handle, legend
from leakbound_lab.figures.plots.plotting import NoOptions, canvas, colorbar, plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP = 2
_RECORD = SeriesStyle("record", "#222222", "o")
_ROWS_OF_A_PICTURE = 8  # records with fewer rows are drawn as lines


class ImageGridOptions(Settings):
    """Options of the plot ``image_grid``."""

    similarity: str | None = "ssim"
    """Metric whose mean over the pictures is printed under each level, or None."""


@plot(NoOptions)
def weights(rows: pd.DataFrame, options: NoOptions) -> Figure:
    """Draw the map of noise weights."""
    require(rows, "row", "column", "value")
    grid = rows.pivot(index="row", columns="column", values="value").to_numpy(float)
    figure = canvas(style.ONE_COLUMN, 2.6)
    axes = figure.subplots()
    image = axes.imshow(grid, cmap="cividis", interpolation="none")
    axes.set(xlabel="column", ylabel="row")
    for axis, set_ticks in enumerate((axes.set_yticks, axes.set_xticks)):
        changes = np.flatnonzero(np.diff(grid, axis=axis).any(axis=1 - axis)) + 1
        ends = sorted({0, *changes.tolist(), grid.shape[axis]})
        set_ticks([end - 0.5 for end in ends], [str(end) for end in ends])
    axes.grid(False)
    values = np.unique(grid)
    colorbar(figure, image, "noise weight β", ax=axes, ticks=values if len(values) < 8 else None)
    return figure


@plot(ImageGridOptions)
def image_grid(rows: pd.DataFrame, options: ImageGridOptions) -> Figure:
    """Draw pictures: a block for each defense, a row for each picture, a column for clean ones and each level.

    Records with few rows, of tables and short time series, are drawn as lines, in a panel for each record and
    level.
    """
    require(rows, "defense", "level", "replica", "color", "row", "column", "metric", "value")
    pixels = select(rows, {"metric": "pixel"})
    names = style.ordered({*pixels["defense"]} - {"none"})
    if not names:
        raise EmptySelectionError("there are no pictures but clean ones")
    clean = pixels[pixels["defense"] == "none"]
    if pixels["row"].nunique() < _ROWS_OF_A_PICTURE:
        return _lines(pixels, names)
    counts = [pixels[pixels["defense"] == name]["level"].nunique() + (not clean.empty) for name in names]
    width = style.at_most(0.62 * sum(counts) + 0.3)
    side = (width - 0.15 * len(names)) / sum(counts)
    figure = canvas(width, side * pixels["replica"].nunique() + 0.75)
    grid = figure.subplots(1, len(names), width_ratios=counts, squeeze=False)[0]
    for axes, name in zip(grid, names, strict=True):
        _block(axes, name, pixels, rows, options.similarity)
    below = f"; below: mean {style.axis_label(options.similarity)}" if options.similarity else ""
    figure.supxlabel(f"clean picture, then capacity per use κ (nats){below}", fontsize=style.FONT_SIZE)
    return figure


def _lines(pixels: pd.DataFrame, names: list[str]) -> Figure:
    """Draw the values of records in order: a row of panels for each record, a column for each level."""
    replicas, levels = (sorted(pixels[key].dropna().unique()) for key in ("replica", "level"))
    figure = canvas(style.TWO_COLUMNS, 1.4 * len(replicas) + 0.9)
    grid = figure.subplots(len(replicas), len(levels), sharex=True, sharey=True, squeeze=False)
    for (row, replica), (column, level) in product(enumerate(replicas), enumerate(levels)):
        part = pixels[(pixels["replica"] == replica) & pixels["level"].isin([level, np.nan])]
        for name in ("none", *names):
            values = part[part["defense"] == name].sort_values(["row", "column"])["value"].to_numpy(float)
            series = _RECORD if name == "none" else style.style_of(name)
            grid[row, column].plot(2 * values - 1, color=series.color, lw=1.6 if name == "none" else 0.8)
        grid[row, column].set_title(f"κ = {in_nats(f'{level:g}')}" if row == 0 else "")
    figure.supxlabel("value of the record, in the order of its columns", fontsize=style.FONT_SIZE)
    figure.supylabel("as networks receive it, −1 to 1", fontsize=style.FONT_SIZE)
    legend(
        figure,
        [handle(series.label, color=series.color) for series in (_RECORD, *map(style.style_of, names))],
    )
    return figure


def _block(axes: Axes, name: str, pixels: pd.DataFrame, rows: pd.DataFrame, similarity: str | None) -> None:
    """Draw the pictures of one defense as one image with white gaps."""
    clean, noisy = (pixels[pixels["defense"] == kind] for kind in ("none", name))
    levels = sorted(noisy["level"].unique())
    columns = [] if clean.empty else [_pictures(clean)]
    columns += [_pictures(noisy[noisy["level"] == level]) for level in levels]
    width = columns[0].shape[2]
    padded = [
        np.pad(column, ((0, 0), (0, _GAP), (0, _GAP), (0, 0)), constant_values=1.0) for column in columns
    ]
    joined = np.concatenate([np.concatenate(list(column), axis=0) for column in padded], axis=1)
    image = joined[:-_GAP, :-_GAP]
    axes.imshow(np.repeat(image, 3, axis=2) if image.shape[2] == 1 else image, interpolation="none")
    labels = ["" if clean.empty else "clean"] * (not clean.empty)
    for level in levels:
        of_level = (rows["defense"] == name) & (rows["level"] == level) & (rows["metric"] == similarity)
        mean = rows[of_level]["value"].mean()
        number = f"{mean:.2f}" if abs(mean) >= 0.01 else f"{mean:.2g}"  # a small error is not 0.00
        labels.append(f"{level:g}" if np.isnan(mean) else f"{level:g}\n{number}")
    axes.set_xticks([(width + _GAP) * index + width / 2 for index in range(len(columns))], labels)
    axes.set_yticks([])
    axes.tick_params(labelsize=style.SMALL)
    bare(axes)
    label = style.style_of(name).label
    axes.annotate(label, (0.5, 1), (0, 3), "axes fraction", "offset points", ha="center")


def _pictures(rows: pd.DataFrame) -> np.ndarray:
    """Make pictures (n, height, width, colors) of pixel rows, clipped to [0, 1]."""
    keys = ["replica", "row", "column", "color"]
    shape = tuple(int(rows[key].nunique()) for key in keys)
    if len(rows) != np.prod(shape):
        raise SelectionError(f"{len(rows)} pixels do not fill pictures of shape {shape}")
    return np.clip(rows.sort_values(keys)["value"].to_numpy(float).reshape(shape), 0.0, 1.0)
