"""Write the pages that show what is kept under results/reference: ``python tools/figures.py [--check]``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from figure_pages import KeptFigure, figures_pages, readme_scoreboard, reference_of_readme
from judging import judged_together
from leakbound import storage
from leakbound.commands.command_line import main
from leakbound_lab.claims.evaluation import COLUMNS, OVERALL, VERDICTS
from leakbound_lab.claims.scoreboard import overall
from leakbound_lab.commands.config import keep_generated
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import NETWORKS, SCOREBOARD, FigureConfig
from leakbound_lab.config.messages import read_yaml
from leakbound_lab.figures.notes import at_length, notes, warnings, with_epsilon
from leakbound_lab.jobs.table import rows_file

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_KEPT = Path("results/reference")
_BLOCK = ["dataset", "model", "replica"]
_Rank = tuple[bool, int, int, int]
_Settings = set[tuple[str, str, float | None]]
"""Datasets, each with a network of the paper and the learning rate of its federation."""


@app.command()
def figures(
    check: Annotated[bool, typer.Option(help="Only check that the pages are up to date.")] = False,
    folder: Annotated[Path, typer.Option(help="Root of the repository.")] = Path(),
) -> None:
    """Write docs/figures.md, docs/figures and the scoreboard of the README from results/reference."""
    keep_generated(_pages(folder), check, "make figures")


def _pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pages of the repository with the text that they should have."""
    config = reading.quick()
    catalogue = reading.load_catalogue(folder / config.catalogue, config)
    # The scoreboard of all runs is in the README.
    shown = [figure for figure in catalogue.figures if figure.table != SCOREBOARD]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    presets = reference_of_readme(readme)
    verdicts = kept_claims(*map((folder / _KEPT).joinpath, presets.split("+"))) if presets else None
    for name, text in figures_pages(shown, _kept(folder / _KEPT, shown), verdicts).items():
        yield folder / "docs" / name, text
    if presets and verdicts is not None:
        yield folder / "README.md", readme_scoreboard(readme, presets, verdicts)


def _kept(folder: Path, figures: Sequence[FigureConfig]) -> dict[str, list[KeptFigure]]:
    """Return the kept results of each figure: of its paper's networks if a run has any of them.

    The first are those of the run with most blocks, of these with most jobs, and of these with most values.
    Results of other runs follow if they have another network of the paper, or another dataset or learning rate
    of a federation with it, or illustrate another dataset, or are the first at the paper's length.
    """
    found: dict[str, list[tuple[_Rank, _Settings, KeptFigure]]] = defaultdict(list)
    by_key = {f"{figure.paper}/{figure.id}": figure for figure in figures}
    for home in sorted(path.parent for path in folder.glob("*/provenance.json")):
        jobs = storage.read_json(home / "provenance.json", sealed=False)["jobs"]
        ran = read_yaml(home / "config.yaml")
        verdicts = kept_claims(home)
        table = cache(partial(storage.read_rows, sealed=False))
        for path in sorted((home / "figures").rglob("*.parquet")):
            key = path.relative_to(home / "figures").with_suffix("").as_posix()
            if (figure := by_key.get(key)) is None:
                continue
            rows = storage.read_rows(path, sealed=False)
            source = rows_file(home, figure)
            whole = table(source) if source.is_file() else rows
            blocks = rows[_BLOCK].drop_duplicates() if {*_BLOCK, "run"} <= set(rows) else pd.DataFrame(columns=_BLOCK)
            own = blocks[blocks["model"].isin(NETWORKS.get(figure.paper, ()))]
            kept = KeptFigure(
                preset=home.name,
                folder=(Path("../..") / _KEPT / home.name).as_posix(),
                rows=with_epsilon(rows, whole),
                claims=verdicts[(verdicts["paper"] == figure.paper) & (verdicts["figure"] == figure.id)],
                notes=notes(figure, whole, ran),
                warnings=warnings(figure, whole),
                at_length=at_length(figure, whole, ran),
                pixels=path.with_suffix(".png").is_file(),
            )
            rate = (ran.get("federated") or {}).get("learning_rate")
            settings = {(dataset, model, rate) for dataset, model in own[["dataset", "model"]].to_numpy().tolist()}
            if figure.illustration and "dataset" in rows:
                settings = {(dataset, "", None) for dataset in rows["dataset"].unique().tolist()}
            found[key].append(((len(own) > 0, len(blocks), jobs, int(rows["value"].notna().sum())), settings, kept))
    return {key: _first_and_others(each) for key, each in found.items()}


def _first_and_others(found: Iterable[tuple[_Rank, _Settings, KeptFigure]]) -> list[KeptFigure]:
    """Choose the first result by rank, and each later one with settings or the length of the paper that none has."""
    shown: _Settings = set()
    chosen: list[KeptFigure] = []
    for _, settings, kept in sorted(found, key=lambda one: one[0], reverse=True):
        lengthens = kept.at_length and not any(one.at_length for one in chosen)
        if not chosen or settings - shown or lengthens:
            chosen.append(kept)
        shown |= settings
    return chosen


def kept_claims(*homes: Path) -> pd.DataFrame:
    """Read the verdicts of kept runs: of those on the same networks, the last that has a figure.

    What a paper prints about networks that several runs have is judged on all blocks of these runs
    (:func:`judging.judged_together`).

    Args:
        homes: Folders of kept runs. A run without ``claims.parquet`` has no verdicts.

    Returns:
        Rows of ``evaluate`` without claims on which there was nothing to compare. A claim on several networks
        has one verdict (:func:`over_networks`).
    """
    by_figure = {}
    for path in (home / "claims.parquet" for home in homes if (home / "claims.parquet").is_file()):
        rows = storage.read_rows(path, sealed=False)
        compared = rows[rows["exact"] | (rows["blocks"] > 0)]
        for key, group in compared.groupby(["paper", "figure", "printed"], sort=False):
            by_figure[(*key, frozenset(group["model"]))] = group
    together = _together(homes) if len(homes) > 1 else pd.DataFrame()
    for key, group in together.groupby(["paper", "figure"]) if len(together) else ():
        by_figure = {other: rows for other, rows in by_figure.items() if other[:3] != (*key, True)}
        by_figure[*key, True, frozenset(group["model"])] = group
    return over_networks(by_figure.values()) if by_figure else pd.DataFrame(columns=list(COLUMNS))


@cache
def _together(homes: tuple[Path, ...]) -> pd.DataFrame:
    """Judge the claims that papers print on all their networks in several runs, without those that show nothing."""
    rows = judged_together(homes)
    return rows[rows["blocks"] > 0]


def over_networks(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Join verdicts on the same claims on different networks.

    Args:
        tables: Rows of ``evaluate``. None has a claim twice.

    Returns:
        Rows of all, with one row over all blocks for each claim. If networks decide a claim differently,
        it is *mixed*, and its detail names them. A closed form fails if it fails on one of them.
    """
    key = ["paper", "figure", "claim", "printed"]
    parts = [rows.assign(on=", ".join(sorted({*rows["model"]} - {"", OVERALL}))) for rows in tables]
    claims = pd.concat(parts, ignore_index=True)
    whole = overall(claims)
    lines = []
    for _, group in whole.groupby(key, sort=False):
        decided = group[group["verdict"] != VERDICTS[-1]]
        line = (decided if len(decided) else group).iloc[-1].to_dict()
        if decided["verdict"].nunique() > 1:
            detail = "; ".join(decided["verdict"] + " on " + decided["on"])
            line |= {"verdict": "fails" if line["exact"] else "mixed", "detail": f"networks differ: {detail}"}
        lines.append(line)
    settled = pd.DataFrame(lines, columns=claims.columns)
    joined = pd.concat([claims.drop(whole.index), settled], ignore_index=True)
    return joined.astype(claims.dtypes).drop(columns="on")


if __name__ == "__main__":
    main(app)
