"""Add the blocks of a repeat to the kept results of a run: ``python tools/pool.py FIRST REPEAT --out FOLDER``."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, get_args

import pandas as pd
import typer

from leakbound import storage
from leakbound.commands.command_line import main
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.claims.scoreboard import overall, to_markdown, verdict_counts
from leakbound_lab.claims.selection import shown_rows
from leakbound_lab.config import reading
from leakbound_lab.config.catalogue import SCOREBOARD, FigureConfig
from leakbound_lab.config.whole import FigureFormat
from leakbound_lab.datasets.records import unpublishable
from leakbound_lab.figures.notes import notes, with_epsilon
from leakbound_lab.steps.job_settings import register_plugins
from leakbound_lab.steps.plot import write_figure
from repeats import differences, evaluate_twice, pooled_rows
from replaced_folders import MANIFEST, check_replaceable, replaced_folder

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def pool(
    first: Annotated[Path, typer.Argument(help="Folder of a kept run, as `keep.py` writes it.")],
    repeat: Annotated[Path, typer.Argument(help="Folder of a kept run of the same studies with another seed.")],
    out: Annotated[Path, typer.Option(help="Folder to write or to replace. It may be that of the first run.")],
) -> None:
    """Add the blocks of a repeat to those of a run, each study once, and decide the claims again.

    Tables and figures of the repeated studies show the replicas of both runs. Each of the two analyses of a
    claim has half of the level, so that a second one does not make errors more frequent (docs/protocol.md).
    Other studies of the run can be repeated later.
    """
    config, again = (reading.load(folder / "config.yaml") for folder in (first, repeat))
    facts, facts_again = (storage.read_json(folder / "provenance.json", sealed=False) for folder in (first, repeat))
    repeats = facts.get("repeats", {})
    if again.preset in repeats:
        raise typer.BadParameter(f"{first}: has the blocks of {again.preset} already, and they are added once")
    earlier = [reading.load(_settings_of(first, preset)) for preset in repeats]
    if problems := [*differences(config, again, earlier)]:
        raise typer.BadParameter(f"{repeat}: is no repeat of {first}: {'; '.join(problems)}")
    check_replaceable(out)
    register_plugins(config.plugins.model_dump())
    catalogue = reading.load_catalogue(config.catalogue, config)
    repeated = [figure for figure in catalogue.figures if figure.study in again.studies]
    readers = {name: dataset.reader or name for name, dataset in config.datasets.items()}
    with replaced_folder(out) as new:
        shutil.copytree(first, new, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        _settings_of(new, again.preset).parent.mkdir(exist_ok=True)
        shutil.copyfile(repeat / "config.yaml", _settings_of(new, again.preset))
        verdicts = [_untouched(first, repeated)]
        for study in again.studies:
            shown = [figure for figure in repeated if figure.study == study]
            verdicts += _again(study, shown, (first, repeat), config.alpha, readers, new)
        claims = pd.concat(verdicts, ignore_index=True)
        storage.write_rows(new / "claims.parquet", claims, sealed=False)
        counts = verdict_counts(claims)
        storage.write_rows(new / f"tables/{SCOREBOARD}.parquet", counts, sealed=False)
        for figure in (figure for figure in catalogue.figures if figure.table == SCOREBOARD):
            redraw(figure, counts, readers, new)
        (new / "scoreboard.md").write_text(to_markdown(claims), encoding="utf-8")
        facts["repeats"] = {**repeats, again.preset: facts_again}
        storage.write_json(new / "provenance.json", facts, sealed=False)
    counted = overall(claims)["verdict"].value_counts()
    sys.stdout.write(f"{out}: {', '.join(f'{count} {verdict}' for verdict, count in counted.items())}\n")


def _untouched(first: Path, repeated: Sequence[FigureConfig]) -> pd.DataFrame:
    """Read the verdicts of a run on the figures that are not repeated now."""
    claims = storage.read_rows(first / "claims.parquet", sealed=False)
    if "first" not in claims:
        claims = claims.assign(first=claims["verdict"], repeat="")
    again = {(figure.paper, figure.id) for figure in repeated}
    return claims[[key not in again for key in zip(claims["paper"], claims["figure"], strict=True)]]


def _again(
    study: str,
    figures: Sequence[FigureConfig],
    runs: tuple[Path, Path],
    alpha: float,
    readers: Mapping[str, str],
    folder: Path,
) -> list[pd.DataFrame]:
    """Write the table of a study and pictures of its figures with the blocks of both runs. Return the verdicts."""
    table = f"tables/{study}.parquet"
    first, repeat = (storage.read_rows(home / table, sealed=False) for home in runs)
    both = pooled_rows(first, repeat)
    storage.write_rows(folder / table, both, sealed=False)
    for figure in figures:
        redraw(figure, both, readers, folder)
    return [evaluate_twice(figure, first, repeat, alpha, partial(numpy_generator, 0)) for figure in figures]


def _settings_of(run: Path, preset: str) -> Path:
    """Return the place of the configuration of a repeat in the folder of a kept run."""
    return run / "repeats" / f"{preset}.yaml"


def redraw(figure: FigureConfig, table: pd.DataFrame, readers: Mapping[str, str], folder: Path) -> None:
    """Draw a figure from a table into the folder of a kept run, unless its pictures may not be published.

    Args:
        figure: Entry of the catalogue.
        table: The table that it shows.
        readers: Name of each dataset's reader.
        folder: Folder of the run.
    """
    chosen = with_epsilon(shown_rows(figure, table), table)
    if chosen.empty or unpublishable(table, readers):
        return
    target = folder / "figures" / figure.paper
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as drawn:  # where pictures get seals, which the folder's manifest replaces
        formats = [kind for kind in get_args(FigureFormat) if (target / f"{figure.id}.{kind}").is_file()]
        write_figure(figure, chosen, Path(drawn) / figure.id, notes=notes(figure, table), formats=formats)
        for suffix in ("svg", *formats):
            shutil.copyfile(f"{drawn}/{figure.id}.{suffix}", target / f"{figure.id}.{suffix}")
    storage.write_rows(target / f"{figure.id}.parquet", chosen, sealed=False)


if __name__ == "__main__":
    main(app)
