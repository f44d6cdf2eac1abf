"""Plots: functions of rows with declared options, drawn in one style and written as pixels.

A plot's module imports Matplotlib and pandas inside its functions, so that its options are checked without
them.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from leakbound_lab.claims.selection import EmptySelectionError, require
from leakbound_lab.config.messages import parse
from leakbound_lab.config.settings import Settings
from leakbound_lab.figures import style

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from matplotlib.colorbar import Colorbar
    from matplotlib.figure import Figure

T = TypeVar("T", bound=Settings)
_CHART = 8192  # colors that a chart has at most; one with photographs has more


class NoOptions(Settings):
    """Options of a plot that has none."""


@dataclass(frozen=True)
class Plot(Generic[T]):
    """A plot with declared options. It is called with rows and plain options."""

    name: str
    settings: type[T]
    render: Callable[[pd.DataFrame, T], Figure]

    def check(self, options: Mapping[str, Any]) -> T:
        """Check options.

        Raises:
            ConfigError: With every mistake in them.
        """
        return parse(self.settings, dict(options), f"plot {self.name}: options")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any]) -> Figure:
        """Draw rows, without values that are not finite.

        If nothing is left to draw, e.g. because every replica diverged, the picture states the reason.

        Raises:
            ConfigError: If an option is wrong.
            SelectionError: If the rows lack a column.
        """
        checked = self.check(options)
        finite = drawable(rows)
        with style.applied():
            try:
                return self.render(finite, checked)
            except EmptySelectionError as reason:
                lost = ", ".join(sorted({*rows.get("metric", ())} - {*finite.get("metric", ())}))
                undefined = f"no value of {lost} is defined; the caption says what it needs"
                return placeholder(undefined if lost else str(reason))


def plot(settings: type[T]) -> Callable[[Callable[[pd.DataFrame, T], Figure]], Plot[T]]:
    """Decorate a function of rows and checked options, so that it becomes a plot of the same name.

    Args:
        settings: Class of its options.
    """
    return lambda render: Plot(render.__name__, settings, render)


def drawable(rows: pd.DataFrame) -> pd.DataFrame:
    """Keep rows with a finite value, and add empty columns dataset and model if they are missing."""
    require(rows, "value")
    missing = {column: "" for column in ("dataset", "model") if column not in rows.columns}
    return rows[np.isfinite(rows["value"].to_numpy(float))].reset_index(drop=True).assign(**missing)


def canvas(width: float, height: float, **settings: Any) -> Figure:
    """Make an empty figure of a size in inches, as far as there is room, by default in constrained layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(style.at_most(width), height), **{"layout": "constrained", **settings})


def colorbar(figure: Figure, mappable: Any, label: str, **settings: Any) -> Colorbar:
    """Add a colour bar without a frame."""
    bar = figure.colorbar(mappable, **settings)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def placeholder(reason: str) -> Figure:
    """Draw a picture that states why it is empty."""
    figure = canvas(style.ONE_COLUMN, style.HEIGHT / 2, layout=None)
    words = textwrap.fill(f"Nothing to show: {reason}", 52)
    figure.text(0.5, 0.5, words, ha="center", va="center", color=style.CONTROL_COLOR)
    return figure


def write_pdf(picture: Figure, path: Path, title: str) -> None:
    """Write a figure as PDF, with the layout that it has.

    Args:
        picture: The figure, drawn before, so that its layout stands.
        path: File to write.
        title: Title in the file.
    """
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    picture.set_layout_engine("none")
    FigureCanvasPdf(picture).print_pdf(path, metadata={"Title": title, "CreationDate": None})


def write_png(picture: Figure, path: Path, title: str) -> None:
    """Write a figure as PNG. A chart gets a palette, which takes a third of the space. Photographs keep all colors.

    Args:
        picture: The figure, drawn before, so that its layout stands, with the resolution of the current style.
        path: File to write.
        title: Title in the file.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    FigureCanvasAgg(picture)
    picture.set_layout_engine("none")
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png")
    image = Image.open(buffer)
    colors = image.convert("RGB")
    facts = PngInfo()
    facts.add_text("Title", title)
    if colors.getcolors(_CHART):
        colors = colors.quantize(dither=Image.Dither.NONE)
    colors.save(path, format="png", dpi=image.info["dpi"], pnginfo=facts, optimize=True)
