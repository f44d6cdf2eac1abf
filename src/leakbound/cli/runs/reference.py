"""Commands: keep results of a finished configuration in the repository, and write the pages that show them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakbound import storage
from leakbound.cli.job_settings import register_plugins
from leakbound.cli.runs.config import keep_generated
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.config.catalogue import SCOREBOARD
from leakbound.config.messages import read_yaml
from leakbound.jobs.job import JobList
from leakbound.jobs.results.summary import summary
from leakbound.jobs.table import rows_file
from leakbound.storage.replaced_folders import check_replaceable, replaced_folder

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.config.catalogue import FigureConfig
    from leakbound.config.whole import Config
    from leakbound.figures.report.pages import KeptFigure

_KEPT = Path("results/reference")
_VALUES = ["value", "low", "high"]
_BLOCK = ["dataset", "model", "replica"]


def reference(
    configfile: Annotated[Path, typer.Option(help="Configuration whose run is finished.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to replace. By default results/reference/<preset>.")
    ] = None,
    units: Annotated[
        bool,
        typer.Option(
            help="Keep also the values of single classes, images and records in the tables. Whether attacks on "
            "them failed is kept in any case."
        ),
    ] = True,
) -> None:
    """Copy the results of a finished configuration into results/reference, to keep them in the repository."""
    config = reading.load(configfile)
    register_plugins(config.plugins.model_dump())
    made = job_list(config)
    root = Path(config.root)
    target = out or _KEPT / config.preset
    check_replaceable(target)
    if not all(Path(path).is_file() for path in made.files("claims")):
        raise typer.BadParameter(
            f"{root} has no claims.parquet: run snakemake --configfile {configfile} first"
        )
    kept = _publishable(made, config)
    facts = summary(root, made)
    for path in kept:
        storage.check(path)
    with replaced_folder(target) as new:
        for path in kept:
            copy = new / path.relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            if not units and copy.parent == new / "tables":
                _drop_units(copy)
        storage.write_json(new / "provenance.json", facts, sealed=False)
        (new / "config.yaml").write_text(reading.as_yaml(config), encoding="utf-8")
    sys.stdout.write(
        f"{target}: {sum(path.stat().st_size for path in target.rglob('*') if path.is_file()) / 1e6:.1f} MB\n"
    )


def _drop_units(table: Path) -> None:
    """Rewrite a kept table without values of single units. One row of each states how the attack ended."""
    import pandas as pd

    rows = storage.read_rows(table, sealed=False)
    if {"unit", "status"} <= set(rows):
        single = rows[rows["unit"] >= 0].sort_values("status", ascending=False, kind="stable")
        ended = single.drop_duplicates(single.columns.difference([*_VALUES, "metric", "status"]))
        kept = [rows[rows["unit"] < 0], ended.assign(**dict.fromkeys(_VALUES, float("nan")))]
        storage.write_rows(table, pd.concat(kept, ignore_index=True), sealed=False)


def _publishable(made: JobList, config: Config) -> list[Path]:
    """List tables, verdicts and figures without private pictures, and print the names of the other figures."""
    from leakbound.datasets.pictures import withheld

    readers = {name: dataset.reader or name for name, dataset in config.datasets.items()}
    tables = [
        path
        for path in made.files()
        if path.startswith(f"{config.root}/tables/") and path.endswith(".parquet")
    ]
    kept = [
        path
        for path in map(Path, dict.fromkeys([*tables, *made.files("claims")]))
        if path.suffix != ".parquet" or not withheld(storage.read_rows(path), readers)
    ]
    for job in made.of("plot"):
        if secret := withheld(storage.read_rows(Path(job.outputs["shown"])), readers):
            sys.stdout.write(
                f"left out {job.name}: it shows pictures of {', '.join(secret)}, whose reader does not say that they "
                "may be published (publishable = True)\n"
            )
        else:
            kept += map(Path, job.outputs.values())
    return kept


def figures(
    check: Annotated[bool, typer.Option(help="Only check that the pages are up to date.")] = False,
    folder: Annotated[Path, typer.Option(help="Root of the repository.")] = Path(),
) -> None:
    """Write docs/figures.md and the scoreboard of the README from the results under results/reference."""
    keep_generated(_pages(folder), check, "leakbound figures")


def _pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the pages of the repository with the text that they should have."""
    from leakbound.figures.report.pages import figures_page, readme_scoreboard, reference_of_readme

    config = reading.quick()
    catalogue = reading.load_catalogue(folder / config.catalogue, config)
    # The scoreboard of all runs is in the README.
    shown = [figure for figure in catalogue.figures if figure.table != SCOREBOARD]
    yield folder / "docs/figures.md", figures_page(shown, _kept(folder / _KEPT, shown))
    readme = (folder / "README.md").read_text(encoding="utf-8")
    if presets := reference_of_readme(readme):
        verdicts = kept_claims(*map((folder / _KEPT).joinpath, presets.split("+")))
        yield folder / "README.md", readme_scoreboard(readme, presets, verdicts)


def _kept(folder: Path, figures: Sequence[FigureConfig]) -> dict[str, KeptFigure]:
    """Return the kept results of each figure, from the configuration with most blocks, and of these with most jobs."""
    from leakbound.figures.notes import notes, warnings, with_epsilon
    from leakbound.figures.report.pages import KeptFigure

    chosen: dict[str, tuple[tuple[int, int], KeptFigure]] = {}
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
            blocks = rows.drop_duplicates(_BLOCK) if {*_BLOCK, "run"} <= set(rows) else ()
            rank = len(blocks), jobs
            if key in chosen and chosen[key][0] >= rank:
                continue
            chosen[key] = (
                rank,
                KeptFigure(
                    preset=home.name,
                    folder=(Path("..") / _KEPT / home.name).as_posix(),
                    rows=with_epsilon(rows, whole),
                    claims=verdicts[(verdicts["paper"] == figure.paper) & (verdicts["figure"] == figure.id)],
                    notes=notes(figure, whole, ran),
                    warnings=warnings(figure, whole),
                ),
            )
    return {key: kept for key, (_, kept) in chosen.items()}


def kept_claims(*homes: Path) -> pd.DataFrame:
    """Read the verdicts of kept runs: of those on the same networks, the last that has a figure.

    Args:
        homes: Folders of kept runs. A run without ``claims.parquet`` has no verdicts.

    Returns:
        Rows of ``evaluate`` without claims on which there was nothing to compare. A claim on several networks
        has one verdict (:func:`leakbound.claims.scoreboard.over_networks`).
    """
    import pandas as pd

    from leakbound.claims.evaluation import COLUMNS
    from leakbound.claims.scoreboard import over_networks

    by_figure = {}
    for path in (home / "claims.parquet" for home in homes if (home / "claims.parquet").is_file()):
        rows = storage.read_rows(path, sealed=False)
        compared = rows[rows["exact"] | (rows["blocks"] > 0)]
        for key, group in compared.groupby(["paper", "figure", "printed"], sort=False):
            by_figure[(*key, frozenset(group["model"]))] = group
    return over_networks(by_figure.values()) if by_figure else pd.DataFrame(columns=list(COLUMNS))
