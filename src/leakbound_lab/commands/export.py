"""Command: figures and tables of a finished configuration as files for a paper."""

from __future__ import annotations

import logging
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leakbound import storage
from leakbound.commands.files import check_outputs
from leakbound.storage.provenance import settings_hash, versions
from leakbound_lab.config import reading
from leakbound_lab.config.messages import unknown_name
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.table import RunTable, rows_file
from leakbound_lab.registries import PLOTS
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption, register_plugins
from leakbound_lab.steps.plot import picture_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_INCHES = {"in": 1.0, "cm": 1 / 2.54, "mm": 1 / 25.4, "pt": 1 / 72.27}
_SMALLEST = 7.0  # points of the smallest text: journals ask for as much at the printed width
_PICTURES = ("pdf", "svg", "png")
_FORMATS = (*_PICTURES, "csv", "tex")
_SETTINGS: Any = {"pdf.fonttype": 42, "svg.fonttype": "path", "savefig.dpi": 600.0}


def export(
    figures: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PAPER/FIGURE]...", help="Figures and tables. All of them if none is given."),
    ] = None,
    configfile: ConfigOption = Path("config/config.yaml"),
    results: Annotated[
        Path | None, typer.Option(help="Folder of its results. By default the one of the configuration.")
    ] = None,
    formats: Annotated[str, typer.Option("--format", help=f"Of {', '.join(_FORMATS)}.")] = "pdf,csv,tex",
    words: Annotated[
        Literal["full", "short"],
        typer.Option(
            "--caption",
            help="Captions of the tex files: full explains the figure and what differs from the paper; short is its "
            "title, data, networks and replicas.",
        ),
    ] = "full",
    width: Annotated[str, typer.Option(help="Width of a column of the page, in in, cm, mm or pt.")] = "3.5in",
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("export"),
) -> None:
    """Write figures and tables of a finished configuration for a paper.

    Pictures are drawn again at the width of a column, with embedded fonts and no text below 7 pt. A table
    becomes a tabular with rules of booktabs. The tex file also has the caption and a label, and references.bib
    the entry to cite. Rows are written as CSV.

    Example: leakbound export tan2024/fig09 --format pdf,tex --width 8.8cm
    """
    kinds = _kinds(formats)
    inches = _inches(width)
    config = reading.load(configfile)
    register_plugins(config.plugins.model_dump())
    table = job_list(config).table
    folder = results or Path(config.root)
    files = _files_of_rows(table, folder, figures or [])
    check_outputs(out / "references.bib")
    out.mkdir(parents=True, exist_ok=True)
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    crowded = [
        key
        for key, rows in files.items()
        if not _export(table, folder, key, rows, out, kinds, inches, short=words == "short")
    ]
    citation = _citation(config.preset, settings_hash(config.model_dump(mode="json")))
    storage.write_text(out / "references.bib", citation, sealed=False)
    written = f"{len(files)} of {len(table.figures)} figures as {', '.join(kinds)}, references.bib"
    sys.stdout.write(f"{out}: {written}\n")
    if crowded:
        sys.stdout.write(f"Text does not fit into {width}: give a larger --width for {' '.join(crowded)}\n")


def _kinds(text: str) -> list[str]:
    """Parse the formats."""
    parts = [part.strip().lower().removeprefix(".") for part in text.split(",")]
    kinds = list(dict.fromkeys(filter(None, parts)))
    if not kinds or not {*kinds} <= {*_FORMATS}:
        raise typer.BadParameter(f"--format {text}: must be some of {','.join(_FORMATS)}")
    return kinds


def _inches(text: str) -> float:
    """Parse a width."""
    length = re.fullmatch(rf"\s*(\d+\.?\d*|\.\d+)\s*({'|'.join(_INCHES)})?\s*", text)
    width = float(length[1]) * _INCHES[length[2] or "in"] if length else 0.0
    if not 1.5 <= width <= 20:
        raise typer.BadParameter(f"--width {text}: must be 1.5in to 20in, e.g. 3.5in, 8.8cm, 88mm or 252pt")
    return width


def _files_of_rows(table: RunTable, folder: Path, wanted: Sequence[str]) -> Mapping[str, Path]:
    """Return the files of the rows of some figures, or of each that is there if none is named."""
    for name in wanted:
        if mistakes := unknown_name("figures", name, "figure", [*table.figures]):
            raise typer.BadParameter(mistakes[0])
    if not table.figures:
        raise typer.BadParameter(
            "the configuration makes the rows of no figure of its catalogue: nothing to export"
        )
    files = {key: output(folder, "plot", key, "shown") for key in wanted or table.figures}
    missing = [key for key, path in files.items() if not path.is_file()]
    if missing[: len(wanted)] or len(missing) == len(files):
        raise typer.BadParameter(
            f"{files[missing[0]]} is not there: run snakemake for this configuration first"
        )
    return {key: path for key, path in files.items() if key not in missing}


def _export(
    table: RunTable,
    folder: Path,
    key: str,
    rows_path: Path,
    out: Path,
    kinds: Sequence[str],
    inches: float,
    *,
    short: bool,
) -> bool:
    """Write one figure. Return whether the text of its picture fits."""
    from leakbound_lab.datasets.records import unpublishable
    from leakbound_lab.figures import style
    from leakbound_lab.figures.notes import caption, notes
    from leakbound_lab.figures.plots.drawn_table import TableOptions, booktabs

    figure = table.figures[key]
    stem = out / key.replace("/", "-")
    in_manifest = (folder / "MANIFEST.sha256").is_file()  # hashes of all files, in place of a seal each
    rows = storage.read_rows(rows_path, sealed=not in_manifest)
    source = Path(rows_file(folder, figure))
    whole = storage.read_rows(source, sealed=not in_manifest) if source.is_file() else rows
    if private := unpublishable(rows, table.readers()):
        raise typer.BadParameter(
            f"{rows_path}: shows private pictures of {', '.join(private)}; run snakemake again to leave them out"
        )
    fits = True
    if drawn := [kind for kind in kinds if kind in _PICTURES]:
        with style.within(inches), style.applied():
            import matplotlib as mpl

            mpl.rcParams.update(_SETTINGS)
            picture = _legible(picture_of(figure, rows))
            for kind in drawn:  # without times, so that equal rows give equal bytes
                facts = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[kind]
                with storage.atomic(stem.with_suffix(f".{kind}"), sealed=False) as target:
                    picture.savefig(target, format=kind, metadata={"Title": figure.title, **facts})
            fits = _fits(picture)
    if "csv" in kinds:
        storage.write_text(
            stem.with_suffix(".csv"), rows.to_csv(index=False, lineterminator="\n"), sealed=False
        )
    if "tex" in kinds:
        under = [] if short else notes(figure, whole, table.config.model_dump(mode="json"))
        words = caption(figure, rows, under, short=short)
        options = PLOTS.get(figure.plot).check(figure.options)
        body = booktabs(rows, options) if isinstance(options, TableOptions) else ""
        storage.write_text(
            stem.with_suffix(".tex"), _float(stem.name, figure.title, words, body), sealed=False
        )
    return fits


def _legible(picture: Figure) -> Figure:
    """Enlarge text that is smaller than journals print, and break lines that are wider than the figure."""
    from matplotlib.text import Text

    characters = int(picture.get_size_inches()[0] / 0.066)
    for text in picture.findobj(Text):
        text.set_fontsize(max(_SMALLEST, text.get_fontsize()))
        lines = text.get_text().split("\n")
        if len(text.get_text()) > characters and text.get_rotation() == 0:
            text.set_text("\n".join(textwrap.fill(line, characters) for line in lines))
    return picture


def _fits(picture: Figure) -> bool:
    """Return True if nothing of a figure leaves the page, and no two labels of axes meet."""
    picture.draw_without_rendering()
    drawn = picture.get_tightbbox()
    (wide, tall) = picture.get_size_inches()
    outside = max(-drawn.x0, -drawn.y0, drawn.x1 - wide, drawn.y1 - tall) * 72
    axes = [axis for each in picture.axes if each.get_visible() for axis in (each.xaxis, each.yaxis)]
    labels = [axis.label for axis in axes if axis.label.get_visible() and axis.label.get_text()]
    boxes = [label.get_window_extent() for label in labels]
    meet = any(box.overlaps(other) for box, other in combinations(boxes, 2))
    return bool(outside < _SMALLEST) and not meet


def _float(name: str, title: str, words: str, body: str) -> str:
    """Write a figure or table of LaTeX with its caption and label."""
    from leakbound_lab.figures.plots.drawn_table import latex

    kind = "table" if body else "figure"
    content = body or f"\\includegraphics{{{name}}}\n"
    return (
        f"\\begin{{{kind}}}\n\\centering\n{content}"
        f"\\caption[{latex(title)}]{{{latex(words)}}}\n\\label{{{kind}:{name}}}\n\\end{{{kind}}}\n"
    )


def _citation(preset: str, digest: str) -> str:
    """Write the entry of BibTeX for the results of a configuration."""
    from leakbound_lab.figures.plots.drawn_table import latex

    version = versions()["leakbound"]
    return (
        f"@misc{{leakbound-{preset}-{digest[:8]},\n"
        f"  author = {{{{The leakbound authors}}}},\n"
        f"  title = {{leakbound: results of the configuration \\texttt{{{latex(preset)}}}}},\n"
        f"  note = {{Version {version}; SHA-256 of the configuration {digest}}},\n}}\n"
    )
