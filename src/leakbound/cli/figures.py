"""Commands: tidy tables, rows of figures that need no training, pictures, verdicts on claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, read_dataset, read_moments, read_settings

RootOption = Annotated[Path, typer.Option(help="Folder of the configuration's results.")]


def illustrate(
    settings: SettingsOption,
    out: Annotated[Path, typer.Option(help="Rows, Parquet.")],
    dataset: Annotated[Path | None, typer.Option(help="Prepared images, if it shows any.")] = None,
    moments: Annotated[Path | None, typer.Option(help="Their mean and covariance.")] = None,
) -> None:
    """Compute the rows of a figure that needs no training."""
    from leakbound.config import IllustrationConfig
    from leakbound.registry import ILLUSTRATIONS

    given = read_settings(settings)
    rows = ILLUSTRATIONS.get(given["illustration"])(
        IllustrationConfig.model_validate(given["config"]),
        dataset=None if dataset is None else read_dataset(dataset),
        moments=None if moments is None else read_moments(moments),
        seed=given["seed"],
    )
    storage.write_rows(out, rows)


def tabulate(
    settings: SettingsOption,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Gather what the runs of a study have written into one tidy table."""
    from leakbound.figures.tables import tabulate as gather

    given = read_settings(settings)
    storage.write_rows(out, gather(_part(root, slug, attacks) for slug, attacks in given["runs"].items()))


def _part(root: Path, slug: str, attacks: list[str]) -> Any:
    """What one run has written."""
    from leakbound.figures.tables import RunPart
    from leakbound.runs import Run

    run = Run.from_slug(slug)
    trained = run.rounds > 0
    provenance = storage.read_json(root / "runs" / slug / "provenance.json") if trained else {}
    return RunPart(
        run=slug,
        dataset=run.dataset,
        model=run.model,
        defense=run.defense,
        level=run.level,
        rounds=run.rounds,
        batch_size=run.batch_size,
        diverged=tuple(provenance.get("diverged", ())),
        curves=storage.read_rows(root / "runs" / slug / "training.parquet") if trained else None,
        attacks={name: storage.read_rows(root / "attacks" / slug / f"{name}.parquet") for name in attacks},
    )


def plot(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Rows of the study or illustration, Parquet.")],
    stem: Annotated[Path, typer.Option(help="Picture, without suffix: .svg and .png are written.")],
    shown: Annotated[Path, typer.Option(help="Exactly the rows that the picture shows, Parquet.")],
) -> None:
    """Draw one figure from its rows."""
    from leakbound.config import FigureConfig
    from leakbound.figures.drawing import draw, figure_rows

    given = read_settings(settings)
    figure = FigureConfig.model_validate(given["figure"])
    chosen = figure_rows(figure, storage.read_rows(rows))
    draw(figure, chosen, stem)
    storage.write_rows(shown, chosen)


def claims(
    settings: SettingsOption,
    root: RootOption,
    out: Annotated[Path, typer.Option(help="Verdicts, Parquet.")],
    scoreboard: Annotated[Path, typer.Option(help="Scoreboard, Markdown.")],
    page: Annotated[Path, typer.Option(help="Scoreboard, HTML.")],
    counts: Annotated[Path, typer.Option(help="Number of claims for each paper and verdict, Parquet.")],
) -> None:
    """Test every claim of every figure on its rows."""
    import pandas as pd

    from leakbound.config import FigureConfig
    from leakbound.figures.claims import evaluate
    from leakbound.figures.scoreboard import to_html, to_markdown, verdict_counts

    given = read_settings(settings)
    found = []
    for values in given["figures"]:
        figure = FigureConfig.model_validate({"plot": "none", "caption": "", **values})
        kind, name = "tables", figure.study or figure.table
        if figure.illustration is not None:
            kind, name = "illustrations", figure.illustration
        found.append(evaluate(figure, storage.read_rows(root / kind / f"{name}.parquet"), given["alpha"]))
    verdicts = pd.concat(found, ignore_index=True)
    storage.write_rows(out, verdicts)
    storage.write_rows(counts, verdict_counts(verdicts))
    for path, text in ((scoreboard, to_markdown(verdicts)), (page, to_html(verdicts))):
        with storage.atomic(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
