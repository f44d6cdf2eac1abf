"""Training of a run with all its replicas."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound import storage
from leakbound.cli.files import covariance_of, device_name, read_channel, write_provenance
from leakbound.cli.live import LiveOption, PresetOption, watching
from leakbound.cli.trainings import TrainingSettings, looked_up, training_request, training_settings
from leakbound.config.settings import Replicas, Steps
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.runs import Run
from leakbound.jobs.table import RunTable
from leakbound.jobs.work import Work
from leakbound.storage.tables import read_table

if TYPE_CHECKING:
    import pandas as pd

_KEPT = {"momentum", "evaluations", "checkpoint_seconds", "max_stack"}
_SHOWN = 2000  # records of each split in all points of a curve but the last


class TrainSettings(TrainingSettings):
    """A training with all its replicas."""

    rounds: Steps
    replicas: Replicas


def jobs(table: RunTable) -> Iterator[Job]:
    """One training for each run that has rounds."""
    for slug, run in table.runs.items():
        if run.rounds > 0:
            yield new_job(
                table.config,
                "train",
                slug,
                {**training_settings(table, run, slug, _KEPT), "rounds": run.rounds, "replicas": run.replicas},
                inputs={
                    "dataset": table.file("prepare", run.dataset),
                    **table.channel_files(run),
                    "trials": table.file("tune", table.search_name(run)),
                },
                **looked_up(table, run),
                purpose=table.first_study[slug],
                work=partial(_work, table, run),
            )


def _work(table: RunTable, run: Run) -> Iterable[Work]:
    """Steps of all replicas, and the points of their curves."""
    size = table.size(run.dataset)
    yield table.step_work(run, run.replicas * run.rounds, run.replicas)
    early = (table.config.training.evaluations - 1) * (min(_SHOWN, size.members) + min(_SHOWN, size.test))
    yield Work("predict", run.replicas * (early + size.members + size.test), run.model, size.colors)
    yield Work("parameters", 4 * run.replicas, run.model, size.colors)


def train(
    asked: TrainSettings,
    plain: dict[str, Any],
    dataset: Path,
    trials: Path,
    weights: Path,
    rows: Path,
    provenance: Path,
    channel: Path | None = None,
    spectrum: Path | None = None,
    code: str = "bare",
    live: LiveOption = None,
    preset: PresetOption = "bare",
) -> None:
    """Train all replicas of a run; a killed job resumes from the checkpoint beside its outputs."""
    from leakbound.training.statement import statement
    from leakbound.training.trainers import train as train_run

    found, source = read_channel(channel, spectrum)
    searched = _trials(trials)
    learning_rate = float(searched.loc[searched["chosen"], "learning_rate"].iloc[0])
    began = time.time()
    facts = Run.from_slug(asked.slug, asked.replicas).facts()
    with watching(live, preset=preset, mechanism=asked.defense.mechanism, **facts) as on_rows:
        request = training_request(
            asked,
            dataset,
            found,
            rounds=asked.rounds,
            replicas=asked.replicas,
            learning_rate=learning_rate,
            checkpoint=weights.with_name(f"checkpoint-{code}.pt"),
            on_rows=on_rows,
        )
        result = train_run(request)
    storage.write_arrays(weights, {name: tensor.cpu().numpy() for name, tensor in result.weights.items()})
    storage.write_rows(rows, result.curves)
    write_provenance(
        provenance,
        plain,
        {"dataset": dataset, "trials": trials, "channel": channel, "spectrum": spectrum},
        device_name(asked.device),
        began,
        code=code,
        learning_rate=learning_rate,
        trials=searched.astype(object).where(searched.notna(), None).to_dict("records"),  # NaN: diverged
        events=[event.to_dict() for event in result.events],
        diverged=result.diverged,
        outputs={"weights": storage.check(weights)},
        **statement(request, result.events, source, len(searched), covariance_of(channel) if channel else None),
    )
    for path in weights.parent.glob("checkpoint-*.pt"):
        path.unlink()


def _trials(path: Path) -> pd.DataFrame:
    """Trials of a learning-rate search, of which exactly one has been chosen."""
    searched = read_table(path, {"learning_rate": "number", "chosen": "truth"}, "tune")
    chosen = searched.loc[searched["chosen"], "learning_rate"] if len(searched) else searched["learning_rate"]
    if len(chosen) != 1 or not (math.isfinite(chosen.iloc[0]) and chosen.iloc[0] > 0):
        raise storage.DamagedFileError(path, f"it has {len(chosen)} chosen learning rates, not one above 0")
    return searched


STEP = Step(TrainSettings, train, jobs, resources="train", resumes=True)
