"""The scoreboard as bars: how many claims of each paper were reproduced, left undecided, contradicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leakbound.claims.selection import require
from leakbound.figures import style
from leakbound.figures.plots.plot import NoOptions, canvas, plot

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# From for to against, so that what is open lies between; the hatch tells them apart without colour.
_LOOKS = {"reproduced": ("#228833", ""), "undecided": ("#c8c8c8", ""), "contradicted": ("#CC6677", "////")}


@plot(NoOptions)
def verdicts(rows: pd.DataFrame, _options: NoOptions) -> Figure:
    """Draw one bar for each paper, its pieces labelled with the number of claims."""
    import pandas as pd

    require(rows, "paper", "verdict", "value")
    counts = rows.pivot_table(index="paper", columns="verdict", values="value", aggfunc="sum", fill_value=0)
    papers = style.ordered(counts.index, style.PAPERS)
    figure = canvas(style.TWO_COLUMNS * 0.75, 0.7 + 0.36 * len(papers))
    axes = figure.subplots()
    ends = pd.Series(0.0, index=papers)
    for verdict, (color, hatch) in _LOOKS.items():
        widths = counts.reindex(index=papers, columns=[verdict], fill_value=0)[verdict].astype(float)
        bars = axes.barh(
            papers, widths, left=ends, height=0.62, color=color, hatch=hatch, ec="white", lw=0.5, label=verdict
        )
        axes.bar_label(bars, [f"{width:.0f}" if width else "" for width in widths], label_type="center", size=7)
        ends += widths
    axes.set_yticks(papers, [style.PAPERS.get(name, name) for name in papers])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="claims")
    figure.legend(loc="outside upper center", ncols=len(_LOOKS))
    return figure
