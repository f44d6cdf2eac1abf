"""Pictures of docs/performance.md, from rows of the benchmark: steps, noise, growth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from leakbound_lab.figures import style
from leakbound_lab.registries import PLOTS

GOAL = {"color": style.CONTROL_COLOR, "marker": "|", "markersize": 14, "linestyle": "none", "zorder": 2}


def draw(rows: pd.DataFrame, folder: Path) -> None:
    """Draw what the rows have a section of.

    Args:
        rows: As ``bench.py`` writes them.
        folder: For ``steps.svg``, ``noise.svg`` and ``growth.svg``.
    """
    pictures = {"steps": _steps, "noise": _noise, "growth": _growth}
    with style.applied():
        for section, picture in pictures.items():
            own = rows[rows["section"] == section]
            if not own.empty:
                figure = picture(own)
                figure.savefig(folder / f"{section}.svg", metadata={"Date": None})
                plt.close(figure)


def _dots(shown: pd.DataFrame, label: str) -> Figure:
    """A median with its quartiles for each case, and its goal, one below the other."""
    figure, axes = plt.subplots(figsize=(6.0, 0.5 + 0.22 * len(shown)), layout="constrained")
    places = range(len(shown))
    reach = [shown["value"] - shown["low"], shown["high"] - shown["value"]]
    axes.errorbar(shown["value"], places, xerr=reach, fmt="o", ms=4, color="#0072B2", lw=1.2, label="median, quartiles")
    goals = shown["expected"].notna().to_numpy()
    if goals.any():
        axes.plot(shown["expected"][goals], [place for place in places if goals[place]], label="goal", **GOAL)
        axes.legend(loc="upper right", frameon=False)
    axes.set_yticks(places, [case.replace("_", " ") for case in shown["case"]])
    axes.set_xlabel(label)
    axes.grid(axis="x", lw=0.4)
    axes.invert_yaxis()
    return figure


def _steps(rows: pd.DataFrame) -> Figure:
    """Ratios of a step's time to that of plain SGD."""
    shown = rows[(rows["metric"] == "ratio") & (rows["case"] != "none")].sort_values("value")
    return _dots(shown, "time of a training step over that of plain SGD (LeNet, batch 64)")


def _noise(rows: pd.DataFrame) -> Figure:
    """Milliseconds of the noise for a batch."""
    shown = rows[rows["metric"] == "seconds"].sort_values("value")
    return _dots(shown.assign(**{name: 1e3 * shown[name] for name in ("value", "low", "high")}), "ms for 64 images")


def _growth(rows: pd.DataFrame) -> Figure:
    """Times over sizes and the growth that the algorithm has."""
    names = rows["group"].str.split(" over ", n=1, expand=True)
    named = rows.assign(model=names[0], dataset=names[1], level=rows["size"], replica=0)
    exponents = named[named["metric"] == "exponent"].set_index("group")["expected"]
    times = named[named["metric"] == "seconds"].assign(variant="taken")
    first = times.sort_values("level").groupby("group").first()
    powers = times["group"].map(exponents)
    start, smallest = times["group"].map(first["value"]), times["group"].map(first["level"])
    expected = times.assign(variant="expected", value=start * (times["level"] / smallest) ** powers)
    options = {
        "where": {"variant": "taken"},
        "series": ["model"],
        "x_label": "size",
        "y_label": "CPU time (s)",
        "log_y": True,
        "controls": [{"label": "expected growth", "where": {"variant": "expected"}}],
    }
    return PLOTS.get("levels")(pd.concat([times, expected]), options=options)
