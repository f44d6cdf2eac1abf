"""One offline page that holds everything a configuration has shown: no request leaves it, whatever shows it."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from leakbound.claims.claims import VERDICTS
from leakbound.claims.scoreboard import NUMBERS, overall, scoreboard, written
from leakbound.config.catalogue import FigureConfig
from leakbound.config.whole import Config
from leakbound.figures import style
from leakbound.figures.plots import planes
from leakbound.figures.report.embedding import embedded, has_points
from leakbound.figures.report.overview import bounds, bounds_of_runs, category, datasets, families, releases, studies

TEMPLATES = Path(__file__).with_name("templates")
"""Folder of templates, style and script."""
_LARGEST_DRAWING = 300_000
_SYMBOLS = {"reproduced": "✓", "contradicted": "✗", "undecided": "?"}


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its caption, the rows that it shows, and its pictures.

    The drawing is SVG; the picture is PNG, shown where the drawing is too large for the page.
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
    """Content of the page: figures in the catalogue's order, with the rows of ``evaluate`` of all of them.

    The provenance is as ``leakbound reference`` keeps it; counts go from a noun to how many there are, e.g. runs, links
    from a run's slug to the address of its page.
    """

    config: Config
    figures: Sequence[ReportFigure]
    claims: pd.DataFrame
    provenance: Mapping[str, Any]
    counts: Mapping[str, int] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)


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
    surroundings.globals |= {"symbols": _SYMBOLS, "claim_columns": ["verdict", *NUMBERS]}
    counts = scoreboard(report.claims) if len(report.claims) else pd.DataFrame()
    return surroundings.get_template("report.html").render(
        report=report,
        totals=counts.iloc[-1].to_dict() if len(counts) else dict.fromkeys(VERDICTS, 0),
        counts=[[style.PAPERS.get(paper, paper), *row] for paper, *row in counts.astype(str).to_numpy().tolist()],
        claims=_listed(report),
        papers=list(_papers(report)),
        datasets=datasets(report.config, report.provenance),
        studies=studies(report.config),
        bounds=bounds(report.provenance),
        bounds_of_runs=bounds_of_runs(report.provenance),
        releases=releases(report.provenance),
        tables=sorted({figure.config.table for figure in report.figures if figure.config.table}),
    )


def _listed(report: Report) -> dict[str, Any]:
    """All claims over all settings: lines of a table, and the facts by which the page narrows it down."""
    anchors = {figure.key: f"#{figure.anchor}" for figure in report.figures}
    claims = written(overall(report.claims))
    lines = claims[["figure", "claim", "verdict", *NUMBERS]].to_numpy().tolist()
    return {
        "lines": [[{"text": key, "href": anchors.get(key)}, *line] for key, *line in lines],
        "facts": [{"data-paper": key.partition("/")[0], "data-verdict": verdict} for key, _, verdict, *_ in lines],
    }


def _papers(report: Report) -> Iterator[dict[str, Any]]:
    """Figures by paper and category, each with its twins, and with its claims."""
    judged = _judged(report.claims)
    for paper in style.ordered((figure.config.paper for figure in report.figures), style.PAPERS):
        by_key = {figure.key: figure for figure in report.figures if figure.config.paper == paper}
        groups: dict[str, list[list[dict[str, Any]]]] = {}
        for keys in families([figure.config for figure in by_key.values()]):
            family = [
                {"figure": by_key[key], "claims": judged.get(key, []), **_points(by_key[key], report.links)}
                for key in keys
            ]
            groups.setdefault(category(by_key[keys[0]].config), []).append(family)
        yield {"id": paper, "name": style.PAPERS[paper], "categories": groups}


def _points(figure: ReportFigure, links: Mapping[str, str]) -> dict[str, Any]:
    """The drawing of a figure whose points lead to runs, with the table of its points; nothing for any other one."""
    if figure.config.plot != "plane" or not has_points(figure.drawing):
        return {"drawing": None, "points": None}
    head, lines = planes.numbers(figure.rows, figure.config.options)
    texts = {
        run: f"{name}: {head[2]} {x}, {head[3]} {y}, {'one seed' if n == '1' else f'mean of {n} seeds'}; run {run}"
        for run, name, x, y, n in lines
    }
    table = [[{"text": run, "href": links.get(run)}, *rest] for run, *rest in lines]
    drawing = embedded(figure.drawing, figure.anchor, figure.config.title, texts, links)
    return {"drawing": drawing, "points": {"head": head, "lines": table}}


def _judged(claims: pd.DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Figure to its claims, each with its line of a table, and lines for its settings if there are several."""
    found: dict[str, list[dict[str, Any]]] = {}
    for (paper, figure, _), rows in claims.groupby(["paper", "figure", "claim"], sort=False):
        whole = overall(rows)
        claim, settings = written(whole).iloc[0], written(rows.drop(whole.index))
        lines = settings[["setting", "verdict", *NUMBERS, "compared"]].to_numpy().tolist()
        found.setdefault(f"{paper}/{figure}", []).append(
            {
                **claim[["claim", "verdict", "compared"]].to_dict(),
                "line": claim[["claim", "verdict", *NUMBERS]].tolist(),
                "settings": lines if len(lines) > 1 else [],
            }
        )
    return found
