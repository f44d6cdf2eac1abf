"""From an entry of the catalogue and its rows to picture files and a caption."""

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from leakbound import storage
from leakbound.config.catalogue import FigureConfig
from leakbound.figures import style
from leakbound.figures.plots.plotting import placeholder
from leakbound.registry import PLOTS

_WITHHELD = "pictures of {} are left out: the reader does not say that they may be published (publishable = True)"
_SMALL = (3.6, 2.5)
_FEW = 4


def draw(
    figure: FigureConfig, rows: pd.DataFrame, stem: Path, withheld: Sequence[str] = (), notes: Sequence[str] = ()
) -> None:
    """Write the picture of the rows that a figure shows to ``<stem>.svg`` and ``.png``; equal rows give equal bytes.

    Args:
        figure: Entry of the catalogue.
        rows: All that it shows.
        stem: Files without their suffix.
        withheld: Datasets whose pictures were left out of the rows; the figure says so and shows nothing else.
        notes: Sentences that stand under it (:func:`leakbound.figures.notes.notes`).

    Raises:
        ConfigError: If an option of the plot is wrong.
        SelectionError: If the rows lack what the plot needs.
    """
    with style.applied():
        if withheld:
            picture = placeholder(_WITHHELD.format(", ".join(withheld)))
        else:
            picture = PLOTS.get(figure.plot)(rows, options=figure.options)
        facts = {"Date": None, "Title": figure.title, "Description": caption(figure, rows, notes)}
        with storage.atomic(stem.with_name(f"{stem.name}.svg")) as path:
            FigureCanvasSVG(picture).print_svg(path, metadata=facts)
        with storage.atomic(stem.with_name(f"{stem.name}.png")) as path:
            FigureCanvasAgg(picture)
            picture.savefig(path, format="png", metadata={"Title": figure.title})


def thumbnail(figure: FigureConfig, rows: pd.DataFrame) -> bytes:
    """The picture drawn for a small space, as SVG: its first panel alone, with a legend only where that is short."""
    for column in ("dataset", "model"):
        if column in rows.columns and len(rows):
            rows = rows[rows[column] == style.ordered(rows[column], style.NAMES)[0]]
    options = dict(figure.options)
    for several in {"rows", "leakages"} & options.keys():
        kept = options[several]
        options[several] = dict([*kept.items()][:1]) if isinstance(kept, dict) else kept[:1]
    drawn = BytesIO()
    with style.applied():
        picture = PLOTS.get(figure.plot)(rows, options=options)
        for legend in picture.legends:
            if len(legend.get_texts()) > _FEW:
                legend.set_visible(False)
                legend.set_in_layout(False)
                picture.supxlabel(legend.get_title().get_text().partition("\n")[0], fontsize=style.FONT_SIZE)
        picture.set_size_inches(_SMALL)
        FigureCanvasSVG(picture).print_svg(drawn, metadata={"Date": None, "Title": figure.title})
    return drawn.getvalue()


def caption(figure: FigureConfig, rows: pd.DataFrame, notes: Sequence[str] = ()) -> str:
    """Text under a figure: the catalogue's words, the data, networks and replicas that its rows hold, and its notes."""
    sentences = [" ".join(figure.caption.split())]
    if "run" in rows.columns and not rows.empty:
        counts = rows[rows["replica"] >= 0].groupby("run")["replica"].nunique()
        # Rows that stand for all replicas say in the caption how many trials they have.
        least, most = (int(counts.min()), int(counts.max())) if len(counts) else (0, 0)
        replicas = str(least) if least == most else f"{least} to {most}"
        datasets, models = (", ".join(sorted(rows[column].unique())) for column in ("dataset", "model"))
        known = f" n = {replicas} replicas." if most else ""
        sentences.append(f"Data: {datasets}. Network: {models}.{known}")
    return " ".join([*sentences, *notes])
