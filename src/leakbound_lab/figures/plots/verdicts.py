"""The scoreboard as bars: the number of claims of each paper by verdict, for experiments and closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leakbound_lab.claims.selection import require
from leakbound_lab.figures import style
from leakbound_lab.figures.plots.panels import legend
from leakbound_lab.figures.plots.plotting import NoOptions, canvas, plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# From reproduced to contradicted, with undecided ones in between. The hatch distinguishes them without colour.
_BARS = {
    "reproduced": ("#228833", ""),
    "holds": ("#228833", ""),
    "mixed": ("#DDCC77", "...."),
    "undecided": ("#e0e0e0", ""),
    "negligible": ("#8FA8C8", "||||"),
    "contradicted": ("#CC6677", "////"),
    "fails": ("#CC6677", "////"),
}


@plot(NoOptions)
def verdicts(rows: pd.DataFrame, _options: NoOptions) -> Figure:
    """Draw one bar for each paper and kind of claim, with pieces labelled by the number of claims."""
    require(rows, "paper", "kind", "verdict", "value")
    papers = style.ordered(rows["paper"], style.PAPERS)
    kinds = [kind for kind, group in rows.groupby("kind", sort=False) if group["value"].sum()] or [
        rows["kind"].iloc[0]
    ]
    most = [rows[rows["kind"] == kind].groupby("paper")["value"].sum().max() for kind in kinds]
    figure = canvas(style.TWO_COLUMNS, 0.9 + 0.36 * len(papers))
    grid = figure.subplots(
        1, len(kinds), sharey=True, squeeze=False, width_ratios=[max(count, sum(most) / 6) for count in most]
    )
    for axes, kind in zip(grid[0], kinds, strict=True):
        _bars(axes, rows[rows["kind"] == kind], papers)
        axes.set_title(f"{kind}s", pad=3)
    grid[0, 0].set_yticks(range(len(papers)), [style.PAPERS.get(name, name) for name in papers])
    grid[0, 0].invert_yaxis()
    handles = [handle for axes in grid[0] for handle in axes.get_legend_handles_labels()[0]]
    figure.supxlabel("claims", fontsize=style.FONT_SIZE)
    legend(figure, handles)
    return figure


def _bars(axes: Axes, rows: pd.DataFrame, papers: list[str]) -> None:
    """Draw the bars of one kind of claim."""
    counts = rows.pivot_table(index="paper", columns="verdict", values="value", aggfunc="sum", fill_value=0)
    counts = counts.reindex(index=papers, columns=[name for name in _BARS if name in counts], fill_value=0)
    ends = counts.cumsum(axis=1) - counts
    for verdict in counts:
        color, hatch = _BARS[verdict]
        widths = counts[verdict].to_list()
        bar_style: dict[str, Any] = {"color": color, "hatch": hatch, "ec": "white", "lw": 0.5}
        bars = axes.barh(range(len(papers)), widths, 0.62, ends[verdict], label=verdict, **bar_style)
        names = [f"{width:.0f}" if width else "" for width in widths]
        behind = {"facecolor": "white", "alpha": 0.75, "linewidth": 0.0, "pad": 0.8}
        for text in axes.bar_label(bars, names, label_type="center", size=7):
            text.set_bbox(behind if text.get_text() and hatch else {"alpha": 0.0})
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.locator_params("x", integer=True, nbins=5)
