"""Commands: tidy tables, rows of figures that need no training, pictures, verdicts on claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from leakbound import storage
from leakbound.cli.files import (
    SettingsOption,
    check_outputs,
    read_dataset,
    read_moments,
    read_record,
    read_settings,
    read_table,
)
from leakbound.cli.jobs import ClaimsJob, IllustrateJob, PlotJob, TabulateJob
from leakbound.config.messages import parse

CURVES: Mapping[str, Literal["number", "text"]] = {
    "replica": "number",
    "step": "number",
    "metric": "text",
    "value": "number",
}
SCORES: Mapping[str, Literal["number", "text"]] = {
    **dict.fromkeys(("replica", "unit", "value", "low", "high"), "number"),
    **dict.fromkeys(("variant", "metric"), "text"),
}
RootOption = Annotated[Path, typer.Option(help="Folder of the configuration's results.")]


def illustrate(
    settings: SettingsOption,
    out: Annotated[Path, typer.Option(help="Rows, Parquet.")],
    dataset: Annotated[Path | None, typer.Option(help="Prepared images, if it shows any.")] = None,
    moments: Annotated[Path | None, typer.Option(help="Their mean and covariance.")] = None,
) -> None:
    """Compute the rows of a figure that needs no training."""
    from leakbound.registry import ILLUSTRATIONS

    check_outputs(out)
    job = read_settings(settings, IllustrateJob)
    rows = ILLUSTRATIONS.get(job.illustration)(
        job.config,
        dataset=None if dataset is None else read_dataset(dataset),
        moments=None if moments is None else read_moments(moments),
        seed=job.seed,
    )
    storage.write_rows(out, rows)


def tabulate(
    settings: SettingsOption,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Gather what the runs of a study have written into one tidy table."""
    from leakbound.claims.tables import tabulate as gather

    check_outputs(out)
    job = read_settings(settings, TabulateJob)
    storage.write_rows(out, gather(_part(root, slug, attacks) for slug, attacks in job.runs.items()))


def _part(root: Path, slug: str, attacks: Sequence[str]) -> Any:
    """What one run has written."""
    from leakbound.claims.tables import RunResults
    from leakbound.jobs.runs import Run

    run = Run.from_slug(slug)
    trained = run.rounds > 0
    return RunResults(
        run=slug,
        dataset=run.dataset,
        model=run.model,
        defense=run.defense,
        level=run.level,
        rounds=run.rounds,
        batch_size=run.batch_size,
        diverged=_diverged(root / "runs" / slug / "provenance.json") if trained else (),
        curves=read_table(root / "runs" / slug / "training.parquet", CURVES, "train") if trained else None,
        attacks={name: read_table(root / "attacks" / slug / f"{name}.parquet", SCORES, "attack") for name in attacks},
    )


def _diverged(path: Path) -> tuple[bool, ...]:
    """Which replicas of a training diverged."""
    found = read_record(path, "train").get("diverged")
    if not isinstance(found, list) or not all(isinstance(one, bool) for one in found):
        raise storage.DamagedFileError(path, "it does not say which replicas diverged")
    return tuple(found)


def plot(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Rows of the study or illustration, Parquet.")],
    stem: Annotated[Path, typer.Option(help="Picture, without suffix: .svg and .png are written.")],
    shown: Annotated[Path, typer.Option(help="Exactly the rows that the picture shows, Parquet.")],
) -> None:
    """Draw one figure from its rows."""
    from leakbound.figures.drawing import draw, figure_rows

    check_outputs(*(stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")), shown)
    figure = read_settings(settings, PlotJob).figure
    chosen = figure_rows(figure, storage.read_rows(rows))
    draw(figure, chosen, stem)
    storage.write_rows(shown, chosen)


def claims(
    settings: SettingsOption,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="Verdicts, Parquet.")],
    scoreboard: Annotated[Path, typer.Option(help="Scoreboard, Markdown.")],
    counts: Annotated[Path, typer.Option(help="Number of claims for each paper and verdict, Parquet.")],
) -> None:
    """Test every claim of every figure on its rows."""
    import pandas as pd

    from leakbound.claims.claims import evaluate
    from leakbound.claims.scoreboard import to_markdown, verdict_counts
    from leakbound.config.catalogue import FigureConfig

    check_outputs(out, scoreboard, counts)
    job = read_settings(settings, ClaimsJob)
    found = []
    for values in job.figures:
        figure = parse(FigureConfig, {"plot": "none", "caption": "", **values}, "--settings: figures")
        kind, name = "tables", figure.study or figure.table
        if figure.illustration is not None:
            kind, name = "illustrations", figure.illustration
        found.append(evaluate(figure, storage.read_rows(root / kind / f"{name}.parquet"), job.alpha))
    verdicts = pd.concat(found, ignore_index=True)
    storage.write_rows(out, verdicts)
    storage.write_rows(counts, verdict_counts(verdicts))
    with storage.atomic(scoreboard) as temporary:
        temporary.write_text(to_markdown(verdicts), encoding="utf-8")
