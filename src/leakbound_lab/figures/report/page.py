"""One offline page with all results of a configuration. It makes no requests, whatever program shows it.

It holds the SVG that each plot wrote, with points that link to their runs. A second page is on what the
user's network leaks about the membership of its records.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from markupsafe import Markup

from leakbound.accounting.risk import membership_bound
from leakbound.accounting.statement import Statement
from leakbound_lab.claims.evaluation import EXACT_VERDICTS, VERDICTS
from leakbound_lab.claims.scoreboard import (
    CLOSED_FORMS,
    NUMBERS,
    effect_text,
    overall,
    scoreboard,
    scoreboard_rows,
)
from leakbound_lab.claims.statistics import smallest_p
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.figures import style
from leakbound_lab.figures.plots import planes
from leakbound_lab.figures.plots.planes import POINT
from leakbound_lab.figures.report import opening, overview
from leakbound_lab.figures.report.page_templates import picture_address, templates

LARGEST_DRAWING = 300_000
"""Bytes of the largest drawing that the page holds as it is."""
_SYMBOLS = dict(zip((*VERDICTS, *EXACT_VERDICTS), "✓✗±≈?✓✗", strict=True))
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_SIDE = 360.0  # side of the picture, within its axes
_Rates = Sequence[Sequence[float]] | tuple[np.ndarray, np.ndarray]
_LIGHT = "#ffffff"
_DARK = "#15181c"
"""Backgrounds of the page, as in its style sheet."""
_FINE = 60  # points of a line on logarithmic axes


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its caption, the rows that it shows, and its pictures.

    Attributes:
        config: Entry of the catalogue.
        caption: Text under the figure.
        drawing: The figure as SVG.
        rows: Rows that the figure shows.
        notes: Sentences under the caption (:func:`leakbound_lab.figures.notes.notes`).
        warnings: Claim to a sentence about it.
        picture: The figure as PNG, which is shown instead of the drawing. Empty if the drawing is small enough
            (``LARGEST_DRAWING``).
    """

    config: FigureConfig
    caption: str
    drawing: bytes
    rows: pd.DataFrame
    notes: Sequence[str] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    picture: bytes = b""

    @property
    def key(self) -> str:
        """``paper/id``."""
        return f"{self.config.paper}/{self.config.id}"

    @property
    def anchor(self) -> str:
        """Identifier of the figure within the page."""
        return f"figure-{self.config.paper}-{self.config.id}"

    @property
    def source(self) -> str:
        """Address that contains the figure itself."""
        if self.picture:
            return picture_address("png", self.picture)
        return picture_address("svg+xml", self.drawing)

    @property
    def size(self) -> dict[str, int]:
        """Width and height of the drawing in points. Empty if it states none."""
        stated = re.findall(rb'<svg[^>]* width="([\d.]+)pt" height="([\d.]+)pt"', self.drawing[:2000])
        return {"width": round(float(stated[0][0])), "height": round(float(stated[0][1]))} if stated else {}

    @property
    def wide(self) -> bool:
        """True for a drawing that takes the width of two."""
        return self.size.get("width", 0) > 432  # 6 inches


@dataclass(frozen=True)
class Report:
    """Content of the page.

    Attributes:
        config: Configuration of the results.
        figures: Figures in the catalogue's order.
        claims: Rows of ``evaluate`` for all figures.
        provenance: Origin of the results, as ``summary`` states it.
        links: Slug of a run to the address of its page.
        tables: Study to its rows.
        curves: Defense to false- and true-positive rates of the membership attack on its last weights.
    """

    config: Config
    figures: Sequence[ReportFigure]
    claims: pd.DataFrame
    provenance: Mapping[str, Any]
    links: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    curves: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(default_factory=dict)

    @cached_property
    def bounds(self) -> dict[Any, Statement]:
        """Defense and level to what is stated of its training."""
        stated = {
            run: Statement.from_numbers(bound["replica"])
            for leakage in self.provenance.get("leakage", {}).values()
            for run, bound in leakage["runs"].items()
        }
        return opening.bounds(self.tables, stated)

    @cached_property
    def sentences(self) -> list[str]:
        """Sentences that open the page: results of other settings, then those of the results."""
        last = scoreboard(self.claims).iloc[-1].to_dict() if len(self.claims) else {}
        totals = {name: int(last.get(name, 0)) for name in VERDICTS}
        opened = opening.sentences(self.tables, self.bounds, totals, self.config)
        if others := self.provenance.get("other_settings"):
            opened.insert(
                0,
                f"Made by other settings than this configuration's: {others} of {self.provenance['jobs']} results. "
                "leakbound verify names them, and snakemake without --rerun-triggers makes them again.",
            )
        return opened


def page(report: Report) -> str:
    """Write the page as HTML.

    The page contains pictures, styles and the script, and its policy forbids requests. Contents of the report
    are inserted as text, never as markup. Equal reports give equal pages.
    """
    surroundings = templates(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    surroundings.filters["written"] = style.written
    surroundings.globals |= {
        "symbols": _SYMBOLS,
        "tiles": [*VERDICTS, *CLOSED_FORMS.values()],
        "numbers": NUMBERS,
    }
    claims = list(_claims(report))
    counts = scoreboard(report.claims) if len(report.claims) else pd.DataFrame()
    by_key = {figure.key: figure for figure in report.figures}
    return surroundings.get_template("report.html").render(
        report=report,
        sentences=report.sentences,
        picture=by_key.get(opening.opening_picture(by_key) or ""),
        outcomes=(lines := opening.outcome_lines(report.tables, report.bounds)),
        meanings=opening.meanings(lines, report.bounds),
        roc=_roc(report.curves),
        counts=[
            [style.PAPERS.get(paper, paper), *row] for paper, *row in counts.astype(str).to_numpy().tolist()
        ],
        claims=_listed(report, claims),
        papers=list(_papers(report, claims)),
        datasets=overview.datasets(report.config, report.provenance),
        studies=overview.studies(report.config),
        swept=overview.swept(report.config),
        bounds=overview.bounds_table(report.provenance),
        bounds_of_runs=overview.bounds_of_runs(report.provenance),
        releases=overview.releases(report.provenance),
        tables=sorted({figure.config.table for figure in report.figures if figure.config.table}),
    )


def _roc(curves: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> dict[str, Any]:
    """Place the curves of defenses, and guessing, on axes down to the least rate that was measured."""
    least = min((false[0] for false, _ in curves.values()), default=0.1)
    guessing = np.geomspace(least, 1, 60)
    marks = {name: style.style_of(name) for name in curves}
    lines = [(mark.label, _in_both_modes(mark.color), curves[name]) for name, mark in marks.items()]
    return drawn_roc([("guessing", "chance", (guessing, guessing)), *lines], math.ceil(-math.log10(least)))


def _in_both_modes(color: str) -> str:
    """Write a colour of CSS that is visible on the page, light or dark."""
    return f"light-dark({style.visible_on(color, _LIGHT)}, {style.visible_on(color, _DARK)})"


def _claims(report: Report) -> Iterator[dict[str, Any]]:
    """Yield the claims in their order, each with a line of a table, and lines for its datasets if several."""
    warnings = {
        (figure.key, claim): text for figure in report.figures for claim, text in figure.warnings.items()
    }
    claims = report.claims.reset_index(drop=True)
    written = scoreboard_rows(claims)
    over_all = claims.index.isin(overall(claims).index)
    for (paper, name, claim), rows in claims.groupby(["paper", "figure", "claim"], sort=False):
        figure = f"{paper}/{name}"
        whole = rows[over_all[rows.index]]
        parts = rows[~over_all[rows.index]]
        stated = written.loc[whole.index[0]]
        datasets = [
            {"name": style.written(str(part_row.dataset)), "verdict": str(part_row.verdict)}
            for part_row in parts[parts["dataset"] != ""].itertuples(index=False)
        ]
        warning = warnings.get((figure, claim))
        text = {"text": stated["claim"], "warning": warning}
        settings = written.loc[parts.index, ["setting", "verdict", *NUMBERS, "compared"]].to_numpy().tolist()
        yield {
            "figure": figure,
            **stated[["claim", "verdict", "compared"]].to_dict(),
            "numbers": in_words(whole.iloc[0], stated, report.config.alpha),
            "datasets": datasets if len(datasets) > 1 else [],
            "warning": warning,
            "line": [text, stated["verdict"], {"verdicts": datasets}, *stated[NUMBERS]],
            "settings": settings if len(settings) > 1 else [],
        }


def in_words(claim: pd.Series, stated: pd.Series, alpha: float) -> str:
    """State in one line what a verdict is based on.

    If there are too few blocks for any verdict, the line says so instead of showing an interval, which would
    suggest that a verdict had been possible. If a claim is undecided although its interval has one sign, the
    line says why.

    Args:
        claim: Row of ``evaluate``.
        stated: The same row as text (:func:`leakbound_lab.claims.scoreboard.scoreboard_rows`).
        alpha: Level of the tests.
    """
    blocks = int(claim["blocks"])
    if claim["exact"]:
        return "checked exactly"
    if not blocks:
        return "nothing to compare"
    counted = f"{blocks} block{'s' * (blocks > 1)}"
    if claim["verdict"] == "undecided" and smallest_p(blocks) > alpha:
        return (
            f"{effect_text(claim, interval=False)}; Δ {stated[NUMBERS[1]]}; {counted}, too few for a verdict"
        )
    words = f"{stated[NUMBERS[0]]}; Δ {stated[NUMBERS[1]]}; p = {stated[NUMBERS[2]]} after Holm, {counted}"
    if claim["verdict"] == "undecided" and (claim["low"] > 0 or claim["high"] < 0):
        words += "; the interval is that of this claim alone, the verdict allows for all of the figure"
    return words


def _listed(report: Report, claims: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """List all claims over all blocks: lines of a table, and the facts by which the page filters it."""
    anchors = {figure.key: f"#{figure.anchor}" for figure in report.figures}
    names = [{"text": claim["figure"], "href": anchors.get(claim["figure"])} for claim in claims]
    return {
        "lines": [[name, *claim["line"]] for name, claim in zip(names, claims, strict=True)],
        "facts": [
            {"data-paper": claim["figure"].partition("/")[0], "data-verdict": claim["verdict"]}
            for claim in claims
        ],
    }


def _papers(report: Report, claims: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the figures of each paper by category, with their variants and claims."""
    for paper in style.ordered((figure.config.paper for figure in report.figures), style.PAPERS):
        by_key = {figure.key: figure for figure in report.figures if figure.config.paper == paper}
        groups: dict[str, list[list[dict[str, Any]]]] = {}
        for keys in overview.families([figure.config for figure in by_key.values()]):
            family = [
                {
                    "figure": by_key[key],
                    "caption": _folded(by_key[key].caption),
                    "claims": [claim for claim in claims if claim["figure"] == key],
                    **_points(by_key[key], report.links),
                }
                for key in keys
            ]
            groups.setdefault(overview.category(by_key[keys[0]].config), []).append(family)
        yield {"id": paper, "name": style.PAPERS[paper], "categories": groups}


def _folded(caption: str) -> tuple[str, str]:
    """Split a caption into its first sentence and the rest."""
    head, _, rest = re.sub(r"(?<=[^.]{12}[.:]) (?=[A-Z])", "\n", caption, count=1).partition("\n")
    return head, rest


def _points(figure: ReportFigure, links: Mapping[str, str]) -> dict[str, Any]:
    """Return the drawing of a plane whose points link to runs, with a table of its points. Empty for others."""
    if figure.config.plot != "plane" or f'id="{POINT}'.encode() not in figure.drawing:
        return {"drawing": None, "points": None}
    head, lines = planes.numbers(figure.rows, figure.config.options)
    center = planes.plane.check(figure.config.options).center
    texts = {
        run: f"{name}: {head[2]} {x}, {head[3]} {y}, {center} of {n} replica{'s' * (n != '1')}; run {run}"
        for run, name, x, y, n in lines
    }
    table = [[{"text": run, "href": links.get(run)}, *rest] for run, *rest in lines]
    return {
        "drawing": embedded(figure.drawing, figure.anchor, figure.config.title, texts, links),
        "points": {"head": head, "lines": table},
    }


def embedded(
    drawing: bytes, name: str, title: str, texts: Mapping[str, str], links: Mapping[str, str]
) -> Markup:
    """Embed an SVG drawing as an element of the page.

    Args:
        drawing: The SVG.
        name: Name of the drawing. It is put before all identifiers, so that they are unique in the page.
        title: Title for readers who listen to the page.
        texts: Run to the text that is shown when its point is hovered or focused.
        links: Run to the address of its page.
    """
    root = ElementTree.fromstring(drawing)
    for child in list(root):
        if child.tag == f"{_SVG}metadata":
            root.remove(child)
    for parent in root.iter(f"{_SVG}defs"):
        # A style would apply to the whole page, which has the same one.
        for rules in parent.findall(f"{_SVG}style"):
            parent.remove(rules)
    for element in root.iter():
        run = element.get("id", "").removeprefix(POINT)
        if run != element.get("id", ""):
            _point(element, run, texts.get(run, run), links.get(run))
        element.tag = element.tag.removeprefix(_SVG)
        attributes = dict(element.attrib)
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id":
                value = f"{name}-{value}"
            elif key == _HREF:
                key = "href"
                value = f"#{name}-{value[1:]}" if value.startswith("#") else value
            element.set(key, value.replace("url(#", f"url(#{name}-"))
    root.attrib |= {"class": "drawing", "role": "group", "aria-label": title}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _point(element: ElementTree.Element, run: str, text: str, link: str | None) -> None:
    """Make a run's point a link to its page, or without a page an element that can be focused."""
    del element.attrib["id"]
    element.attrib |= {"class": "point", "aria-label": text, "data-run": run}
    if link is None:
        element.attrib |= {"tabindex": "0", "role": "img"}
    else:
        element.tag = "a"
        element.attrib |= {"href": link, "target": "_blank", "rel": "noopener"}
    title = ElementTree.Element("title")
    title.text = text
    element.insert(0, title)


def audit_page(facts: Mapping[str, Any]) -> str:
    """Write the page as self-contained HTML.

    Args:
        facts: Plain values, as ``leakbound audit --checkpoint ... --json`` writes them.
    """
    decades = max(1, math.ceil(math.log10(max(facts["evaluated_members"], facts["evaluated_others"]))))
    symbols = {"contradicted": "✗"}
    roc = drawn_roc(_lines(facts, decades), decades)
    return templates().get_template("audit.html").render(facts=facts, symbols=symbols, roc=roc)


def drawn_roc(lines: Iterable[tuple[str, str, _Rates]], decades: int) -> dict[str, Any]:
    """Place rates on logarithmic axes, for the macro ``roc`` of the templates.

    Args:
        lines: Name of each line, its class or color, its false- and its true-positive rates.
        decades: Powers of ten that the axes show.
    """
    return {
        "side": _SIDE,
        "ticks": [(_SIDE * (1 - power / decades), f"{10.0**-power:g}") for power in range(decades + 1)],
        "lines": [(name, mark, _path(rates, decades)) for name, mark, rates in lines],
    }


def _lines(facts: Mapping[str, Any], decades: int) -> Iterator[tuple[str, str, _Rates]]:
    """Yield name, style and rates of each line: the strongest attacker, guessing, and the bound."""
    yield "strongest attacker", "curve", facts["curve"]
    rates = [10 ** (-decades * (1 - step / _FINE)) for step in range(_FINE + 1)]
    yield "guessing", "chance", (rates, rates)
    bound = facts["bound"]
    if bound is None:
        return
    if bound["quantity"] == "nats":
        advantage = membership_bound(bound["value"])[0]
        yield "bound", "bound", (rates, [min(1.0, rate + advantage) for rate in rates])
        return
    # A member is compared with another record, not with its absence: that is one removal and one addition.
    factor = math.exp(min(bound["value"], 300.0))
    most = [min(1.0, factor**2 * rate + (1 + factor) * bound["delta"]) for rate in rates]
    yield "bound", "bound", (rates, most)


def _path(rates: _Rates, decades: int) -> str:
    """Write the points of an SVG line, with logarithmic axes that are cut at their lower ends."""

    def place(rate: float) -> float:
        return _SIDE * max(0.0, 1 + math.log10(max(rate, 1e-300)) / decades)

    return " ".join(
        f"{place(false):.1f},{_SIDE - place(true):.1f}" for false, true in zip(*rates, strict=True)
    )
