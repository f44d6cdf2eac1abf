"""Verdicts on the claims of all figures."""

from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.jobs.job import Job, Step, new_job
from leakbound_lab.jobs.table import RunTable, rows_file


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield one job for all claims, if there are any."""
    claiming = table.claiming()
    if claiming:
        drawing = {"plot", "options", "caption"}  # settings that change no verdict
        figures = [figure.model_dump(mode="json", exclude=drawing) for figure in claiming]
        yield new_job(
            table.config,
            "claims",
            "claims",
            {"preset": table.config.preset, "alpha": table.config.alpha, "figures": figures},
            arguments={"alpha": table.config.alpha, "figures": claiming},
            inputs={"rows": sorted({table.rows_file(figure) for figure in claiming})},
            uses={"claim_tests": sorted({claim.test for figure in claiming for claim in figure.claims})},
            purpose="figures",
        )


def claims(
    alpha: float, figures: Sequence[FigureConfig], root: Path, out: Path, scoreboard: Path, counts: Path
) -> None:
    """Test every claim of every figure on its rows.

    Args:
        alpha: Level of the tests.
        figures: Entries of the catalogue with claims.
        root: Folder of the results, whose tables are read.
        out: Verdicts to write.
        scoreboard: The same as a page of Markdown.
        counts: Their numbers to write.
    """
    import pandas as pd

    from leakbound.randomness.seeding import numpy_generator
    from leakbound_lab.claims.evaluation import evaluate
    from leakbound_lab.claims.scoreboard import to_markdown, verdict_counts

    read = cache(storage.read_rows)  # a table is shown by several figures
    verdicts_of_figures = []
    for figure in figures:
        rows = read(rows_file(root, figure))
        verdicts_of_figures.append(evaluate(figure, rows, alpha, partial(numpy_generator, 0)))
    verdicts = pd.concat(verdicts_of_figures, ignore_index=True)
    storage.write_rows(out, verdicts)
    storage.write_rows(counts, verdict_counts(verdicts))
    storage.write_text(scoreboard, to_markdown(verdicts))


STEP = Step(claims, jobs, final=True)
