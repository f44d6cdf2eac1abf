"""Training of a run with all its replicas."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.commands.files import read_channel
from leakbound_lab.config.training import TrainingSettings
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.jobs.runs import Run
from leakbound_lab.steps import inputs

_EVALUATED = 2000  # records of each split in all points of a curve but the last


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a training for each run that has rounds."""
    for slug, run in table.runs.items():
        if run.rounds > 0:
            yield new_job(
                table.config,
                "train",
                slug,
                {"dataset": run.dataset},
                arguments={
                    "training": training_settings(table, run, run.replicas),
                    "keeps_all": table.rates[slug] == "all",
                },
                inputs={"dataset": table.file("prepare", run.dataset), **table.channel_files(run)},
                **looked_up(table, run),
                purpose=table.first_study[slug],
                work=partial(_work, table, run),
            )


def _work(table: RunTable, run: Run) -> Iterable[Work]:
    """Yield the steps of all replicas with all candidates, and the points of their curves."""
    size = table.size(run.dataset)
    slots = run.replicas * len(table.candidates(run))
    yield table.step_work(run, slots * run.rounds, slots)
    parts = (size.members, size.validation, size.test)
    early = (table.config.training.evaluations - 1) * sum(min(_EVALUATED, part) for part in parts)
    yield Work("predict", slots * (early + len(table.lengths[run.slug]) * sum(parts)), run.model, size.colors)
    yield Work("parameters", 4 * table.kept(run), run.model, size.colors)


def train(
    training: TrainingSettings,
    keeps_all: bool,
    plain: dict[str, Any],
    dataset: Path,
    weights: Path,
    rates: Path,
    rows: Path,
    provenance: Path,
    channel: Path | None = None,
    spectrum: Path | None = None,
    code: str = inputs.BARE,
) -> None:
    """Train all replicas of a run. A killed job resumes from the checkpoint next to its outputs.

    If nothing but the number of replicas differs from an earlier call, only new replicas are trained.
    Every candidate learning rate is trained at full length. By default the weights of the candidate are kept
    that the validation records of each replica choose. A run can also keep the weights of all candidates, at
    the end or at all lengths.

    Args:
        training: Settings of the training.
        keeps_all: Whether the weights of all candidates are kept.
        plain: These settings as plain values, for the provenance.
        dataset: Images to read.
        weights: Weights to write: parameter name to values (kept networks, ...).
        rates: Table to write, with a row for each replica, candidate and length.
        rows: Curves to write.
        provenance: Record to write.
        channel: Channel of the defense to read, if it has one.
        spectrum: Spectrum of that channel.
        code: Fingerprint of the code behind the result.
    """
    from leakbound_lab.steps.earlier import Earlier, train_missing
    from leakbound_lab.training.leakage_statement import leakage_so_far, statement
    from leakbound_lab.training.request import training_request

    # The request: settings with the images and the channel, which must have been calibrated for such images.
    noise, source = read_channel(channel, spectrum)
    began = time.time()
    request = training_request(
        replace(training, device=inputs.device_name(training.device)),
        inputs.read_dataset(dataset),
        noise,
        weights.with_name(f"checkpoint-{code}.pt"),
    )
    if channel is not None and noise is not None and source is not None:
        inputs.check_passing(request.dataset, channel, noise, source, dataset)
    request = replace(request, leakage_after=leakage_so_far(request, source))
    # Networks: those of an earlier call, and those that are missing.
    read = {"dataset": dataset, "channel": channel, "spectrum": spectrum}
    files = {"weights": weights, "rates": rates, "rows": rows, "provenance": provenance}
    earlier = Earlier(files, plain, read, request.device, code)
    trained = train_missing(request, earlier.networks(), keeps_all=keeps_all)
    # Files, the provenance last, which states their privacy events.
    tried = trained.rates
    storage.write_arrays(weights, trained.arrays, {"frozen": trained.frozen} if trained.frozen else None)
    storage.write_rows(rates, tried)
    storage.write_rows(rows, trained.curves)
    inputs.write_provenance(
        provenance,
        plain,
        read,
        request.device,
        began,
        code=code,
        rates=tried.astype(object).where(tried.notna(), None).to_dict("records"),  # NaN: diverged
        precision=request.config.precision,
        events=[event.to_dict() for event in trained.events],
        diverged=[bool(flag) for flag in tried.loc[tried["chosen"], "diverged"]],
        outputs={"weights": storage.check(weights)},
        **statement(request, trained.events, source, inputs.covariance_of(channel) if channel else None),
    )
    earlier.keep()
    inputs.remove_checkpoints(weights)


def training_settings(table: RunTable, run: Run, replicas: int) -> TrainingSettings:
    """Return all settings that trainings of a run depend on, taken from the configuration.

    Args:
        table: Runs of the configuration.
        run: One of these runs.
        replicas: Number of replicas, which are those of the run or its reference networks.
    """
    config = table.config
    defense = table.defense_of(run)
    return TrainingSettings(
        model=run.model,
        defense=defense,
        slug=run.slug,
        level=run.level,
        batch_size=run.batch_size,
        seed=config.seed,
        privacy_noise=config.privacy_noise if defense.draws_noise else "seeded",
        lengths=table.lengths[run.slug],
        device=config.device_of("train"),
        config=config.training,
        rounds=run.rounds,
        replicas=replicas,
    )


def looked_up(table: RunTable, run: Run) -> dict[str, Any]:
    """Return the names that the training of a run looks up, for :func:`leakbound_lab.jobs.job.new_job`.

    Args:
        table: Runs of the configuration.
        run: One of these runs.
    """
    defense = table.config.defense(run.defense)
    return {"uses": {"models": [run.model], "mechanisms": [defense.mechanism]}, "modules": defense.modules()}


STEP = Step(train, jobs)
