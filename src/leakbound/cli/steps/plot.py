"""Pictures of figures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import typer

from leakbound import storage
from leakbound.cli.files import JobSettings
from leakbound.config.catalogue import FigureConfig
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.table import RunTable
from leakbound.jobs.work import Work


class PlotSettings(JobSettings):
    """A figure."""

    figure: FigureConfig


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each figure."""
    for key, figure in table.figures.items():
        yield new_job(
            table.config,
            "plot",
            key,
            {"figure": figure.model_dump(mode="json", exclude={"claims"})},  # claims do not change its looks
            inputs={"rows": table.rows_file(figure)},
            uses={"plots": [figure.plot]},
            purpose="figures",
            work=_work,
        )


def _work() -> Iterator[Work]:
    """A vector and a pixel picture, typically."""
    yield Work("disk", 2e5)


def plot(
    asked: PlotSettings,
    rows: Path,
    svg: Path,
    png: Path,
    shown: Path,
) -> None:
    """Draw one figure from its rows."""
    from leakbound.claims.selection import select
    from leakbound.figures.drawing import draw

    stem = svg.with_suffix("")
    if png != stem.with_suffix(".png"):
        raise typer.BadParameter(f"--png: must be {stem.with_suffix('.png')}, beside {svg}")
    figure = asked.figure
    chosen = select(storage.read_rows(rows), figure.select)
    draw(figure, chosen, stem)
    storage.write_rows(shown, chosen)


STEP = Step(PlotSettings, plot, jobs, group="figures", final=True)
