"""Learning-rate search of equal budget for each defense and level."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from leakbound import storage
from leakbound.cli.files import read_channel
from leakbound.cli.trainings import TrainingSettings, looked_up, training_request, training_settings
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.runs import Run
from leakbound.jobs.table import RunTable
from leakbound.jobs.work import Work

_KEPT = {"momentum", "learning_rates", "search_rounds", "validation_fraction", "max_stack"}


class TuneSettings(TrainingSettings):
    """A learning-rate search."""


def jobs(table: RunTable) -> Iterator[Job]:
    """One search for all runs that differ by their length alone."""
    for name, run in table.searches().items():
        yield new_job(
            table.config,
            "tune",
            name,
            training_settings(table, run, name, _KEPT),
            inputs={"dataset": table.file("prepare", run.dataset), **table.channel_files(run)},
            **looked_up(table, run),
            purpose=table.first_study[run.slug],
            work=partial(_work, table, run),
        )


def _work(table: RunTable, run: Run) -> Iterable[Work]:
    """A short training for each candidate."""
    training, size = table.config.training, table.size(run.dataset)
    rates = len(table.config.defense(run.defense).learning_rates or training.learning_rates)
    yield table.step_work(run, rates * training.search_rounds)
    yield Work("predict", rates * size.members, run.model, size.colors)


def tune(
    asked: TuneSettings, dataset: Path, out: Path, channel: Path | None = None, spectrum: Path | None = None
) -> None:
    """Try each learning rate on a held-out part of the members; every defense and level tries equally many."""
    from leakbound.training.search import search_learning_rate

    found, _ = read_channel(channel, spectrum)
    search = search_learning_rate(training_request(asked, dataset, found, rounds=0, learning_rate=1.0))
    storage.write_rows(out, search.table.assign(chosen=search.table["learning_rate"] == search.learning_rate))


STEP = Step(TuneSettings, tune, jobs, resources="tune")
