"""Pictures of figures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import typer
from pydantic import Field

from leakbound import storage
from leakbound.cli.job_settings import JobSettings
from leakbound.config.catalogue import FigureConfig
from leakbound.config.settings import Name
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.plan.work import Work
from leakbound.jobs.table import RunTable


class PlotSettings(JobSettings):
    """A figure."""

    figure: FigureConfig
    stronger_with: dict[Name, Literal["larger level", "smaller level"]] = Field(default_factory=dict)
    readers: dict[Name, Name] = Field(default_factory=dict)


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each figure."""
    readers = table.readers()
    for key, figure in table.figures.items():
        yield new_job(
            table.config,
            "plot",
            key,
            {
                "figure": figure.model_dump(mode="json", exclude={"claims"}),  # they do not change its looks
                **table.strength_settings(),
                "readers": readers,
            },
            inputs={"rows": table.rows_file(figure)},
            uses={"plots": [figure.plot], "datasets": sorted({*readers.values()})},
            purpose="figures",
            work=_work,
        )


def _work() -> Iterator[Work]:
    """A vector and a pixel picture, typically."""
    yield Work("disk", 2e5)


def plot(asked: PlotSettings, rows: Path, svg: Path, png: Path, shown: Path) -> None:
    """Draw one figure from its rows, without pictures of records that may not be published."""
    from leakbound.claims.selection import rows_of, select
    from leakbound.config.strength import with_stated_strength
    from leakbound.datasets.pictures import withheld
    from leakbound.figures.drawing import draw
    from leakbound.figures.notes import notes, with_epsilon

    stem = svg.with_suffix("")
    if png != stem.with_suffix(".png"):
        raise typer.BadParameter(f"--png: must be {stem.with_suffix('.png')}, beside {svg}")
    figure = asked.figure
    table = storage.read_rows(rows)
    chosen = with_epsilon(rows_of(figure, table), table)
    if chosen.empty:
        select(table, figure.select)  # its error names the condition that leaves nothing
    if private := withheld(table, asked.readers):  # what is measured on such a picture names it, too
        chosen = chosen[~chosen["dataset"].isin(private)] if "dataset" in chosen else chosen[:0]
    draw(figure, with_stated_strength(chosen, asked.stronger_with), stem, private, notes(figure, table))
    storage.write_rows(shown, chosen)


STEP = Step(PlotSettings, plot, jobs, group="figures", final=True)
