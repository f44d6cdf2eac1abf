"""Commands: keep results of a finished configuration in the repository; write the pages that show what is kept."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leakbound import storage
from leakbound.cli.runs.config import keep_generated
from leakbound.cli.settings import register_plugins
from leakbound.cli.steps.job_list import job_list
from leakbound.config import reading
from leakbound.jobs.results.summary import summary
from leakbound.jobs.table import rows_file
from leakbound.storage.replaced_folders import check_replaceable, replaced_folder

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.config.catalogue import FigureConfig
    from leakbound.config.whole import Config
    from leakbound.figures.report.pages import Kept

_KEPT = Path("results/reference")


def reference(
    configfile: Annotated[Path, typer.Option(help="Configuration that has been run.")],
    out: Annotated[Path | None, typer.Option(help="Folder to replace; default results/reference/<preset>.")] = None,
) -> None:
    """Copy the results of a finished configuration that are worth keeping in the repository."""
    config = reading.load(configfile)
    register_plugins(config.plugins.model_dump())
    made = job_list(config)
    root, target = Path(config.root), out or _KEPT / config.preset
    check_replaceable(target)
    if not all(Path(path).is_file() for path in made.files("claims")):
        raise typer.BadParameter(f"{root} has no claims.parquet: run snakemake --configfile {configfile} first")
    kept = [path for path in made.files() if path.startswith(f"{root}/tables/") and path.endswith(".parquet")]
    kept += [path for path in made.files("claims") if path not in kept]
    kept = [path for path in kept if not (path.endswith(".parquet") and _unpublishable(Path(path), config))]
    for job in made.of("plot"):
        if secret := _unpublishable(Path(job.outputs["shown"]), config):
            sys.stdout.write(
                f"left out {job.name}: it shows pictures of {', '.join(secret)}, whose reader does not say that they "
                "may be published (publishable = True)\n"
            )
        else:
            kept += job.outputs.values()
    facts = summary(root, made)
    for path in kept:
        storage.check(path)
    with replaced_folder(target) as new:
        for path in kept:
            copy = new / Path(path).relative_to(root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        storage.write_json(new / "provenance.json", facts, sealed=False)
        (new / "config.yaml").write_text(reading.as_yaml(config), encoding="utf-8")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sys.stdout.write(f"{target}: {size / 1e6:.1f} MB\n")


def _unpublishable(path: Path, config: Config) -> list[str]:
    """Datasets whose pictures the rows of a figure hold though their readers do not let them be published."""
    from leakbound.datasets.pictures import withheld

    return withheld(storage.read_rows(path), {name: one.reader or name for name, one in config.datasets.items()})


def figures(
    check: Annotated[bool, typer.Option(help="Only say whether the pages are up to date.")] = False,
    folder: Annotated[Path, typer.Option(help="Root of the repository.")] = Path(),
) -> None:
    """Write docs/figures.md and the scoreboard of the README from what is kept under results/reference."""
    keep_generated(_pages(folder), check, "leakbound figures")


def _pages(folder: Path) -> Iterator[tuple[Path, str]]:
    """Pages of the repository with the text that they should have."""
    from leakbound.figures.report.pages import figures_page, readme_scoreboard, reference_of_readme

    config = reading.quick()
    catalogue = reading.load_catalogue(folder / config.catalogue, config)
    yield folder / "docs/figures.md", figures_page(catalogue.figures, _kept(folder / _KEPT, catalogue.figures))
    readme = (folder / "README.md").read_text(encoding="utf-8")
    if preset := reference_of_readme(readme):
        claims, _ = _claims(folder / _KEPT / preset)
        yield folder / "README.md", readme_scoreboard(readme, preset, claims)


def _kept(folder: Path, figures: Sequence[FigureConfig]) -> dict[str, Kept]:
    """Figure to what is kept of it; of several configurations that with most replicas, then that with most jobs."""
    from leakbound.figures.notes import notes, warnings, with_epsilon
    from leakbound.figures.report.pages import Kept

    found: dict[str, tuple[tuple[int, int], Kept]] = {}
    known = {f"{figure.paper}/{figure.id}": figure for figure in figures}
    for home in sorted(path.parent for path in folder.glob("*/provenance.json")):
        jobs = storage.read_json(home / "provenance.json", sealed=False)["jobs"]
        verdicts, earlier = _claims(home)
        tables: dict[Path, pd.DataFrame] = {}
        for path in sorted((home / "figures").rglob("*.parquet")):
            key = path.relative_to(home / "figures").with_suffix("").as_posix()
            if key not in known:
                continue
            figure, rows = known[key], storage.read_rows(path, sealed=False)
            source = rows_file(home, figure)
            if figure.study and source not in tables and source.is_file():
                tables[source] = storage.read_rows(source, sealed=False)
            whole = tables.get(source, rows)
            replicas = int(rows["replica"].nunique()) if {"replica", "run"} <= set(rows) else 0
            claims = verdicts[(verdicts["paper"] == figure.paper) & (verdicts["figure"] == figure.id)]
            kept = Kept(
                preset=home.name,
                folder=(Path("..") / _KEPT / home.name).as_posix(),
                rows=with_epsilon(rows, whole),
                claims=claims,
                notes=notes(figure, whole),
                warnings=warnings(figure, whole),
                earlier=earlier,
            )
            if key not in found or found[key][0] < (replicas, jobs):
                found[key] = ((replicas, jobs), kept)
    return {key: kept for key, (_, kept) in found.items()}


def _claims(home: Path) -> tuple[pd.DataFrame, bool]:
    """Verdicts of kept results, and whether an earlier protocol reached them: theirs had neither blocks nor delta."""
    import pandas as pd

    from leakbound.claims.evaluation import COLUMNS

    path = home / "claims.parquet"
    if not path.is_file():
        return pd.DataFrame(columns=list(COLUMNS)), False
    found = storage.read_rows(path, sealed=False)
    if "blocks" in found.columns:
        return found, False
    exact = (found["p_value"] == 0) | found["detail"].str.startswith("exact")
    found = found.rename(columns={"n": "blocks", "seeds_needed": "blocks_needed"})
    return found.assign(unit="", delta=math.nan, power=math.nan, exact=exact), True
