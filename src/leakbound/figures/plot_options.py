"""What the plots can be told; nothing here draws, so that options are checked without loading what does."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Strict

from leakbound.claims.options import Columns
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings


class NoOptions(Settings):
    """A plot that has none."""


class Control(Settings):
    """Rows drawn as a grey dashed line that says how the others are to be read."""

    label: str
    """Name of the line."""
    where: Conditions
    """Rows of the control."""


class LevelsOptions(Settings):
    """Options of the plot ``levels``."""

    x: str = "level"
    """Column along x, e.g. ``level``, ``rounds`` or ``batch_size``."""
    series: Columns = ("defense",)
    """Columns that tell lines apart; the first that varies gives colour and marker. Models that are none of them have a
    row of panels each."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines; the others are for the controls."""
    rows: dict[str, Conditions] = Field(default_factory=dict)
    """Label of a y axis to the rows that its row of panels shows, controls included; models are lines then."""
    controls: Annotated[tuple[Control, ...], Strict(False)] = ()
    """Control lines; one without rows is left out."""
    x_label: str | None = None
    """Label of the x axis, with unit."""
    y_label: str | None = None
    """Label of the y axis, with unit; by default the metric's."""
    log_x: bool | None = None
    """Logarithmic x axis; by default where its values span a factor of three."""
    even_x: bool = False
    """Whether the values along x are drawn at equal distances, whatever their size."""
    log_y: bool = False
    """Logarithmic y axis."""
    share_y: bool = False
    """Whether the panels of a row have one y axis; each has its own otherwise."""
    chance: float | None = None
    """Height of a dotted control line at a constant."""
    chance_label: str = "chance"
    """Name of that line."""
    chance_rows: Columns = ()
    """Of several ``rows`` the labels of those that have that line; all if empty."""
    replicas: bool = False
    """Whether single replicas are drawn as thin lines."""


class PlaneOptions(Settings):
    """Options of the plot ``plane``."""

    x: Conditions
    """Rows of the quantity along x."""
    y: Conditions
    """Rows of the quantity along y."""
    along: Literal["level", "rounds", "batch_size"] = "level"
    """Column along which the points of a line are connected, and whose values name them."""
    series: Columns = ("defense",)
    """Columns that tell lines apart; models that are none of them have a row of panels each."""
    where: Conditions = Field(default_factory=dict)
    """Rows that count at all."""
    x_label: str | None = None
    """Label of the x axis, with unit; by default the metric's."""
    y_label: str | None = None
    """Label of the y axis, with unit; by default the metric's."""
    start: Conditions | None = None
    """Rows whose mean is a grey vertical line, labelled ``start``."""
    diagonal: bool = False
    """Whether the line of equal x and y is drawn."""


class HeatmapOptions(Settings):
    """Options of the plot ``heatmap``."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the cells."""
    constants: dict[str, Conditions] = Field(default_factory=dict)
    """Label to the rows of a control that has no level: a column of its own at the right, e.g. the prior."""
    floor: Conditions | None = None
    """Rows of a control with the cells' levels, printed small in each cell, e.g. the oracle."""
    label: str | None = None
    """Label of the colours, with unit; by default the metric's."""
    log: bool = False
    """Logarithmic colours."""
    digits: int = Field(default=4, ge=0, le=6)
    """Decimals printed."""


class Cell(Settings):
    """One number in each cell of a table: the mean over replicas."""

    where: Conditions = Field(default_factory=dict)
    """Rows of the number."""
    text: str = "{mean:.3g}"
    """Python format of ``mean``, ``low`` and ``high``, the ends of the 95 % interval, and ``half``, half its width."""
    mild: bool = False
    """Whether it is grey and small."""


class TableOptions(Settings):
    """Options of the plot ``table``."""

    where: Conditions = Field(default_factory=dict)
    """Rows that count at all."""
    rows: Columns = ("model",)
    """Columns whose values have a line each."""
    columns: Columns = ("defense",)
    """Columns whose values have a column each."""
    cells: Annotated[tuple[Cell, ...], Strict(False), Field(min_length=1)]
    """Numbers of a cell, one under the other; one without rows is left out."""
    printed: dict[str, dict[str, str]] = Field(default_factory=dict)
    """What the paper prints, in grey: value of the first of ``rows`` to value of the first of ``columns`` to text."""


class ShapesOptions(Settings):
    """Options of the plot ``shapes``."""

    labels: dict[str, str]
    """Metric to the label of its panel's y axis, in the order of the panels."""


class ImageGridOptions(Settings):
    """Options of the plot ``image_grid``."""

    similarity: str | None = "ssim"
    """Metric whose mean over the pictures is printed under each level; None for none."""
    images: int = Field(default=16, ge=1)
    """Most pictures shown."""


class TimesOptions(Settings):
    """Options of the plot ``times``."""

    x: str = "time"
    """Column along x."""
    x_label: str = "time (steps)"
    """Label of the x axis, with unit."""
    y_label: str
    """Label of the y axis, with unit."""
    series: Columns
    """Columns that tell lines apart; the first that varies gives the colour."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines; the others are for the controls."""
    controls: Annotated[tuple[Control, ...], Strict(False), Field(max_length=3)] = ()
    """Horizontal lines at the mean of their rows; one without rows is left out."""
    until: float | None = None
    """Last time drawn; all of them by default."""
    log_y: bool = True
    """Logarithmic y axis."""
    width: float = Field(default=5.0, gt=1.0, le=7.0)
    """Width of the figure in inches."""


class BudgetsOptions(Settings):
    """Options of the plot ``budgets``."""

    x: str = "communication_round"
    """Column along x."""
    x_label: str = "communication round"
    """Label of the x axis, with unit."""
    y_label: str
    """Label of the y axis, with unit."""
    series: str
    """Column that tells lines apart: names, or numbers, which get shades; a missing number is the undisturbed line."""
    label: str = "{:g}"
    """Python format of a number in the legend."""
    where: Conditions = Field(default_factory=dict)
    """Rows drawn as lines."""
    log_x: bool = False
    """Logarithmic x axis."""
    log_y: bool = False
    """Logarithmic y axis."""
