"""One offline page that holds everything a configuration has shown: no request leaves it, whatever shows it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from leakbound.claims.claims import VERDICTS
from leakbound.claims.scoreboard import WrittenClaim, overall, scoreboard, written
from leakbound.config.catalogue import FigureConfig
from leakbound.config.whole import Config
from leakbound.figures import style
from leakbound.figures.report.drawing import HEIGHT, WIDTH, Picture, picture
from leakbound.figures.report.overview import category, datasets, families, paper_name, papers_of, studies
from leakbound.figures.report.planes import planes

TEMPLATES = Path(__file__).with_name("templates")
"""Folder of what the page is made of."""
_LARGEST_DRAWING = 300_000
_SYMBOLS = {"reproduced": "✓", "contradicted": "✗", "undecided": "?"}


@dataclass(frozen=True)
class ReportFigure:
    """A figure with what was drawn.

    Attributes:
        config: Entry of the catalogue.
        caption: Text under it.
        drawing: Bytes of its SVG.
        picture: Bytes of its PNG, shown where the drawing is too large for the page.
        rows: The rows it shows.
    """

    config: FigureConfig
    caption: str
    drawing: bytes
    picture: bytes
    rows: pd.DataFrame

    @property
    def key(self) -> str:
        """``paper/id``."""
        return f"{self.config.paper}/{self.config.id}"

    @property
    def anchor(self) -> str:
        """Its name within the page."""
        return f"figure-{self.config.paper}-{self.config.id}"

    @property
    def source(self) -> str:
        """Its picture as an address that holds the picture itself."""
        small = len(self.drawing) <= _LARGEST_DRAWING
        kind, content = ("svg+xml", self.drawing) if small else ("png", self.picture)
        return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


@dataclass(frozen=True)
class Report:
    """Everything that the page shows.

    Attributes:
        config: The configuration.
        figures: In the order of the catalogue.
        claims: Rows of ``evaluate`` of all figures.
        provenance: Where the results come from, as ``leakbound reference`` keeps it.
        counts: What to how many of them, e.g. runs.
        links: Slug of a run to the address of its page.
    """

    config: Config
    figures: Sequence[ReportFigure]
    claims: pd.DataFrame
    provenance: Mapping[str, Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Judged:
    """A claim over all settings, with the verdicts in each."""

    claim: WrittenClaim
    settings: list[WrittenClaim]


def page(report: Report) -> str:
    """The page as HTML.

    It is whole by itself: pictures, styles and the script are inside, and a policy forbids it any request. Whatever the
    report holds is text in it, never markup. Equal reports give equal pages.
    """
    surroundings = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    surroundings.filters["written"] = style.written
    surroundings.filters["seed_values"] = astuple
    pictures = [picture(plane) for figure in report.figures for plane in planes(figure.config, figure.rows)]
    return surroundings.get_template("report.html").render(
        report=report,
        symbols=_SYMBOLS,
        verdicts=VERDICTS,
        counts=scoreboard(report.claims).to_dict("records") if len(report.claims) else [],
        claims=written(overall(report.claims)),
        papers=list(_papers(report)),
        planes=list(_planes(report, pictures)),
        facets=_facets(pictures),
        datasets=datasets(report.config, report.provenance),
        studies=studies(report.config),
        tables=sorted({figure.config.table for figure in report.figures if figure.config.table}),
        paper_name=paper_name,
        anchors={figure.key: figure.anchor for figure in report.figures},
        shape={"width": round(WIDTH), "height": round(HEIGHT)},
    )


def _papers(report: Report) -> Iterator[dict[str, Any]]:
    """Figures by paper and category, each with its twins, and with its claims."""
    judged = _judged(report.claims)
    for paper in papers_of([figure.config for figure in report.figures]):
        own = [figure for figure in report.figures if figure.config.paper == paper]
        by_key = {figure.key: figure for figure in own}
        groups: dict[str, list[list[dict[str, Any]]]] = {}
        for keys in families([figure.config for figure in own]):
            family = [{"figure": by_key[key], "claims": judged.get(key, [])} for key in keys]
            groups.setdefault(category(by_key[keys[0]].config), []).append(family)
        yield {"id": paper, "name": paper_name(paper), "categories": groups}


def _planes(report: Report, pictures: Sequence[Picture]) -> Iterator[dict[str, Any]]:
    """Planes by figure; of a dataset and network the figure's and its twins' beside each other."""
    configs = {figure.key: figure.config for figure in report.figures}
    for keys in families(list(configs.values())):
        own = [drawn for key in keys for drawn in pictures if drawn.plane.figure == key]
        rows: dict[tuple[str, str], list[Picture]] = {}
        for drawn in own:
            rows.setdefault((drawn.plane.dataset, drawn.plane.model), []).append(drawn)
        if own:
            yield {"title": configs[keys[0]].title, "rows": list(rows.values())}


def _judged(claims: pd.DataFrame) -> dict[str, list[_Judged]]:
    """Figure to its claims."""
    found: dict[str, list[_Judged]] = {}
    for (paper, figure, _), rows in claims.groupby(["paper", "figure", "claim"], sort=False):
        (whole,) = written(overall(rows))
        settings = written(rows.drop(overall(rows).index))
        found.setdefault(f"{paper}/{figure}", []).append(_Judged(whole, settings if len(settings) > 1 else []))
    return found


def _facets(pictures: Sequence[Picture]) -> dict[str, list[str]]:
    """Datasets and networks that the planes can be chosen by."""
    return {
        name: sorted({getattr(drawn.plane, name) for drawn in pictures}, key=style.written)
        for name in ("dataset", "model")
    }
