"""Pictures of figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from leakbound import storage
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.whole import FigureFormat
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.registries import PLOTS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

_WITHHELD = (
    "pictures of {} are left out: the reader does not say that they may be published (publishable = True)"
)


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each figure."""
    readers = table.readers()
    ran = table.config.model_dump(mode="json", include={"datasets", "federated"})
    formats = table.config.figure_formats
    for key, figure in table.figures.items():
        yield new_job(
            table.config,
            "plot",
            key,
            {"figure": figure.model_dump(mode="json", exclude={"claims"})},  # which do not change the picture
            arguments={
                "figure": figure.model_copy(update={"claims": ()}),
                "readers": readers,
                "ran": ran if figure.facts else {},
            },
            inputs={"rows": table.rows_file(figure)},
            uses={"plots": [figure.plot], "datasets": sorted({*readers.values()})},
            purpose="figures",
            work=lambda: [Work("disk", 1e5 * (1 + len(formats)))],  # of each picture, typically
            part_of=figure.paper,
            without=tuple(kind for kind in get_args(FigureFormat) if kind not in formats),
        )


def plot(
    figure: FigureConfig,
    readers: Mapping[str, str],
    ran: Mapping[str, Any],
    rows: Path,
    svg: Path,
    shown: Path,
    png: Path | None = None,
    pdf: Path | None = None,
) -> None:
    """Draw one figure from its rows, without pictures of records that may not be published.

    Args:
        figure: Entry of the catalogue.
        readers: Dataset to the name of its reader.
        ran: Sections of the configuration that the figure's notes are about.
        rows: Table to read.
        svg: Picture to write.
        shown: Table to write, of the rows that the figure shows.
        png: The same picture in pixels, to write next to it. None for no such file.
        pdf: Likewise as PDF.
    """
    from leakbound_lab.claims.selection import select, shown_rows
    from leakbound_lab.datasets.records import unpublishable
    from leakbound_lab.figures.notes import notes, with_epsilon

    stem = svg.with_suffix("")
    formats = [kind for kind, path in (("png", png), ("pdf", pdf)) if path]
    table = _table(rows, rows.stat().st_mtime_ns)
    points = with_epsilon(shown_rows(figure, table), table)
    if points.empty:
        select(table, figure.select)  # its error names the condition that leaves nothing
    if private := unpublishable(table, readers):  # what is measured on such a picture names it, too
        points = points[~points["dataset"].isin(private)] if "dataset" in points else points[:0]
    write_figure(figure, points, stem, private, notes(figure, table, ran), formats)
    storage.write_rows(shown, points)


@lru_cache(maxsize=2)
def _table(path: Path, written: int) -> pd.DataFrame:
    """Read a table once for all figures of a job that show it."""
    return storage.read_rows(path)


def write_figure(
    figure: FigureConfig,
    rows: pd.DataFrame,
    stem: Path,
    withheld: Sequence[str] = (),
    notes: Sequence[str] = (),
    formats: Sequence[str] = (),
) -> None:
    """Write a figure to ``<stem>.svg``, and in further formats next to it. Equal rows give equal bytes.

    Args:
        figure: Entry of the catalogue.
        rows: All rows that the figure shows.
        stem: Path of the files without suffix.
        withheld: Datasets whose pictures were left out of the rows. If there are any, the figure only says
            so.
        notes: Sentences under the figure (:func:`leakbound_lab.figures.notes.notes`).
        formats: Formats besides SVG, of ``png`` and ``pdf``.

    Raises:
        ConfigError: If an option of the plot is wrong.
        SelectionError: If the rows lack what the plot needs.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    from leakbound_lab.figures import style
    from leakbound_lab.figures.notes import caption
    from leakbound_lab.figures.plots.plotting import write_pdf, write_png

    with style.applied():
        picture = picture_of(figure, rows, withheld)
        facts = {"Date": None, "Title": figure.title, "Description": caption(figure, rows, notes)}
        with storage.atomic(stem.with_name(f"{stem.name}.svg")) as path:
            FigureCanvasSVG(picture).print_svg(path, metadata=facts)
        writers = {"png": write_png, "pdf": write_pdf}
        for kind in formats:
            with storage.atomic(stem.with_name(f"{stem.name}.{kind}")) as path:
                writers[kind](picture, path, figure.title)


def picture_of(figure: FigureConfig, rows: pd.DataFrame, withheld: Sequence[str] = ()) -> Figure:
    """Draw a figure in the current style, or one that names datasets whose pictures may not be published.

    Args:
        figure: Entry of the catalogue.
        rows: All rows that the figure shows.
        withheld: As in :func:`write_figure`.
    """
    from leakbound_lab.figures.plots.plotting import placeholder

    if withheld:
        return placeholder(_WITHHELD.format(", ".join(withheld)))
    return PLOTS.get(figure.plot)(rows, options=figure.options)


STEP = Step(plot, jobs, final=True)
