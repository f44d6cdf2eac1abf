"""Verdicts on the claims of all figures."""

from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, Strict

from leakbound import storage
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.messages import parse
from leakbound_lab.config.settings import Name
from leakbound_lab.jobs.job import Job, Step, new_job
from leakbound_lab.jobs.table import RunTable, rows_file
from leakbound_lab.steps.job_settings import SETTINGS, JobSettings


class ClaimsSettings(JobSettings):
    """Figures with claims, without the settings that only draw them."""

    preset: Name
    alpha: Annotated[float, Field(gt=0, lt=0.5)]
    figures: Annotated[tuple[dict[str, Any], ...], Strict(False), Field(min_length=1)]


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield one job for all claims, if there are any."""
    claiming = table.claiming()
    if claiming:
        figures = [
            figure.model_dump(mode="json", exclude={"plot", "options", "caption"}) for figure in claiming
        ]
        yield new_job(
            table.config,
            "claims",
            "claims",
            {"preset": table.config.preset, "alpha": table.config.alpha, "figures": figures},
            inputs={"rows": sorted({table.rows_file(figure) for figure in claiming})},
            uses={"claim_tests": sorted({claim.test for figure in claiming for claim in figure.claims})},
            purpose="figures",
        )


def claims(settings: ClaimsSettings, root: Path, out: Path, scoreboard: Path, counts: Path) -> None:
    """Test every claim of every figure on its rows."""
    import pandas as pd

    from leakbound.randomness.seeding import numpy_generator
    from leakbound_lab.claims.evaluation import evaluate
    from leakbound_lab.claims.scoreboard import to_markdown, verdict_counts

    read = cache(storage.read_rows)  # a table is shown by several figures
    verdicts_of_figures = []
    for values in settings.figures:
        figure = parse(FigureConfig, {"plot": "none", "caption": "", **values}, f"{SETTINGS}: figures")
        rows = read(rows_file(root, figure))
        verdicts_of_figures.append(evaluate(figure, rows, settings.alpha, partial(numpy_generator, 0)))
    verdicts = pd.concat(verdicts_of_figures, ignore_index=True)
    storage.write_rows(out, verdicts)
    storage.write_rows(counts, verdict_counts(verdicts))
    storage.write_text(scoreboard, to_markdown(verdicts))


STEP = Step(ClaimsSettings, claims, jobs, final=True)
