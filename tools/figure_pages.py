"""Markdown pages kept in the repository: the figures of all papers, and the scoreboard of the README."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from leakbound_lab.claims.scoreboard import (
    NUMBERS,
    counts_text,
    markdown_table,
    of_datasets,
    overall,
    scoreboard,
    scoreboard_rows,
)
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.figures import style
from leakbound_lab.figures.report.overview import category, families, swept_levels

_HEAD = """\
# Figures and tables

Each figure and table of the papers, and those that go beyond them, as the committed runs under `results/reference` drew
them. There is a page for each paper, with each figure's picture, what it shows, the settings, and its claims with their
verdicts. How to read the attacks and the claims: [the guide](guide.md). `make figures` writes these pages from
`config/figures`. *Natural* noise is equal on every pixel, *white* noise [is not](glossary.md#natural-and-white).

A figure of a paper shows networks of that paper where a run has them, and says what else is not as in the paper. A
claim is by a paper if the paper prints it and the run has a network of the paper, on which alone it is then judged;
all others are by us. If several runs have networks of the paper, the verdict here is that of all their blocks.
"""
_PAGE = """\
# {paper}: figures and tables

[All papers](../figures.md). *Natural* noise is equal on every pixel, *white* noise
[is not](../glossary.md#natural-and-white). Fewer than four replicas are dots, without an interval.
"""
_NUMBERED = re.compile(r"(fig|table)\d+")
"""Identifiers of what a paper prints. Twins and what goes beyond the papers have other names."""
_MARKER = "scoreboard of {preset}"


@dataclass(frozen=True)
class KeptFigure:
    """Results of one figure in a committed run.

    Attributes:
        preset: Name of the configuration.
        folder: Folder of its results, relative to the page.
        rows: Rows that the figure shows.
        claims: Rows of ``evaluate``.
        notes: Sentences under the caption.
        warnings: Claim to a sentence about it.
        at_length: True if it shows networks of the paper after as many rounds as the paper prints.
        pixels: True if its picture was kept as PNG, too, which the page then shows.
    """

    preset: str
    folder: str
    rows: pd.DataFrame
    claims: pd.DataFrame
    notes: Sequence[str] = ()
    warnings: Mapping[str, str] = field(default_factory=dict)
    at_length: bool = False
    pixels: bool = False


def figures_pages(
    figures: Sequence[FigureConfig], kept: Mapping[str, Sequence[KeptFigure]], verdicts: pd.DataFrame | None
) -> dict[str, str]:
    """Write the page of contents, and one for each paper. Figures without results are listed as not drawn yet.

    Args:
        figures: All figures of the catalogue.
        kept: ``paper/id`` of a figure to its results.
        verdicts: Rows of ``evaluate`` of all runs together, None if they were not judged together.

    Returns:
        Path below docs to the text.
    """
    by_key = {f"{figure.paper}/{figure.id}": figure for figure in figures}
    order = [key for family in sorted(families(figures)) for key in family]
    contents: list[str] = []
    pages: dict[str, str] = {}
    for paper in style.ordered((figure.paper for figure in figures), style.PAPERS):
        entries = {key: by_key[key] for key in order if by_key[key].paper == paper}
        joint = {key: _together(figure, verdicts) for key, figure in entries.items()}
        lines = "\n".join(_line(key, figure, kept.get(key, ()), joint[key]) for key, figure in entries.items())
        page = f"figures/{paper}.md"
        link = f"[Pictures and claims]({page})"
        heading = f'<a id="{paper}"></a>\n\n## {style.PAPERS[paper]}\n\n{link}'
        contents.append("\n\n".join(filter(None, [heading, _lengths(entries, kept), lines])) + "\n")
        pages[page] = "\n".join([_PAGE.format(paper=style.PAPERS[paper]), *_sections(entries, kept, joint)])
    return {"figures.md": "\n".join([_HEAD, *contents]), **pages}


def _together(figure: FigureConfig, verdicts: pd.DataFrame | None) -> pd.DataFrame:
    """Choose the verdicts on what a paper prints about a figure, on all its networks."""
    if verdicts is None:
        return pd.DataFrame()
    mine = (verdicts["paper"] == figure.paper) & (verdicts["figure"] == figure.id)
    return verdicts[mine & verdicts["printed"]]


def _lengths(figures: Mapping[str, FigureConfig], kept: Mapping[str, Sequence[KeptFigure]]) -> str:
    """Count the figures and tables of a paper that stand on its networks at its length, if any train a network."""
    trained = {key: figure for key, figure in figures.items() if figure.facts and _NUMBERED.fullmatch(figure.id)}
    if not trained:
        return ""
    there = [figure.id for key, figure in trained.items() if any(one.at_length for one in kept.get(key, ()))]
    rest = [figure.id for figure in trained.values() if figure.id not in there]
    counted = f"Of {len(trained)} numbered figures and tables with networks, {len(there)} stand on the paper's networks"
    shown = f": {', '.join(there)}" if there else ""
    return f"{counted} at its length{shown}." + (f" Not: {', '.join(rest)}." if rest else "")


def _sections(
    figures: Mapping[str, FigureConfig], kept: Mapping[str, Sequence[KeptFigure]], joint: Mapping[str, pd.DataFrame]
) -> Iterator[str]:
    """Yield the sections of one paper: its figures, then a list of those without results."""
    for key, figure in figures.items():
        if key in kept:
            yield _entry(key, figure, kept[key], joint[key])
    waiting = [figure for key, figure in figures.items() if key not in kept]
    if waiting:
        listed = "\n".join(f"- {figure.id}: {figure.title} ({category(figure).lower()})" for figure in waiting)
        yield f"## No committed run shows these yet\n\n{listed}\n"


def readme_scoreboard(readme: str, preset: str, claims: pd.DataFrame) -> str:
    """Update the counts of verdicts in the README.

    Args:
        readme: Text with the lines ``<!-- scoreboard of <preset> -->`` and ``<!-- end of scoreboard -->``.
        preset: Name of the configuration, or several joined by ``+``.
        claims: Rows of ``evaluate`` of these configurations.

    Raises:
        ValueError: If the markers are missing.
    """
    start = f"<!-- {_MARKER.format(preset=preset)} -->"
    end = "<!-- end of scoreboard -->"
    before, opened, rest = readme.partition(start)
    _, closed, after = rest.partition(end)
    if not (opened and closed):
        raise ValueError(f"the README lacks the lines {start!r} and {end!r}, between which the scoreboard stands")
    counts = scoreboard(claims)
    counts["paper"] = counts["paper"].replace(style.PAPERS)
    return f"{before}{start}\n{markdown_table(counts, counts.to_numpy().tolist())}\n{closed}{after}"


def reference_of_readme(readme: str) -> str | None:
    """Return the name, or names joined by ``+``, of what the README's scoreboard counts, or None."""
    marker = re.search(r"^<!-- " + _MARKER.format(preset=r"([\w+]+)") + r" -->$", readme, re.MULTILINE)
    return None if marker is None else marker[1]


def _line(key: str, figure: FigureConfig, kept: Sequence[KeptFigure], joint: pd.DataFrame) -> str:
    """Write a line of the table of contents."""
    if not kept:
        return f"- {figure.id}: {figure.title} (not drawn yet)"
    counts = counts_text(overall(joint if len(joint) else kept[0].claims)["verdict"])
    link = f"figures/{figure.paper}.md#{key.replace('/', '-')}"
    return f"- [{figure.id}: {figure.title}]({link})" + (f" – {counts}" if counts else "")


def _entry(key: str, figure: FigureConfig, kept: Sequence[KeptFigure], joint: pd.DataFrame) -> str:
    """Write one figure with picture, caption, settings and claims of each run, and the verdict on all together."""
    paragraphs = [f'<a id="{key.replace("/", "-")}"></a>', f"## {figure.id}: {figure.title}"]
    for place, one in enumerate(kept):
        picture = f"{one.folder}/figures/{key}"
        links = f"[drawing]({picture}.svg), [rows]({picture}.parquet), [run]({one.folder}/provenance.json)"
        words = figure.caption.split() if place == 0 else ["The same in another run."]
        paragraphs += [
            f"![{figure.title}]({picture}.{'png' if one.pixels else 'svg'})",
            " ".join([*words, *one.notes]),
            f"**Settings.** {'. '.join(_settings(figure, one))}. {links}.",
        ]
        if len(one.claims):
            paragraphs.append(_table(_claims(one.claims, one.warnings)))
    if len(joint) and not any({*overall(joint)["blocks"]} <= {*overall(one.claims)["blocks"]} for one in kept):
        paragraphs += ["On all networks of the paper in all runs:", _table(_claims(joint, {}))]
    return "\n\n".join(paragraphs) + "\n"


def _table(rows: Iterator[list[str]]) -> str:
    """Write the table of claims."""
    return markdown_table(["claim", "by", "verdict", "by dataset", *NUMBERS], rows)


def _settings(figure: FigureConfig, kept: KeptFigure) -> Iterator[str]:
    """Yield the sources of the picture, in phrases."""
    yield f"Preset {kept.preset}; {category(figure).lower()}"
    rows = kept.rows
    for column, word in (("dataset", "Data"), ("model", "Networks")):
        if column in rows:
            yield f"{word}: {', '.join(style.written(name) for name in rows[column].dropna().unique())}"
    if {"defense", "level"} <= set(rows):
        swept = _levels(rows)
        yield f"Levels: {swept_levels(swept)}"
        for model, own in rows.groupby("model") if "model" in rows else ():
            if _levels(own) != swept:
                yield f"Of these {style.written(str(model))} has: {swept_levels(_levels(own))}"
    if figure.study is None or "run" not in rows:
        return
    for column, word in (("rounds", "Rounds"), ("batch_size", "Batch size")):
        numbers = sorted(rows[column].unique())
        if any(numbers):
            yield f"{word}: {', '.join(f'{number:,}' for number in numbers)}"
    counts = rows[rows["replica"] >= 0].groupby("run")["replica"].nunique()
    if counts.empty:
        yield "All replicas together"
    else:
        yield f"Replicas: {' to '.join(str(count) for count in sorted({counts.min(), counts.max()}))}"


def _levels(rows: pd.DataFrame) -> dict[str, list[float]]:
    """List the levels of each defense."""
    return {
        name: sorted(rows.loc[rows["defense"] == name, "level"].dropna().unique())
        for name in style.ordered(rows["defense"])
    }


def _claims(claims: pd.DataFrame, warnings: Mapping[str, str]) -> Iterator[list[str]]:
    """Yield the lines of the table of claims."""
    whole = overall(claims)
    for name, datasets, claim in zip(
        whole["claim"], of_datasets(claims), scoreboard_rows(whole).to_dict("records"), strict=True
    ):
        warning = f" ⚠ {warnings[name]}" if name in warnings else ""
        yield [
            f"{claim['claim']}{warning}",
            claim["by"],
            claim["verdict"],
            datasets,
            *(claim[number] for number in NUMBERS),
        ]
