"""Training of a run with all its replicas."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound import storage
from leakbound.commands.files import read_channel
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.jobs.runs import Run
from leakbound_lab.steps import inputs
from leakbound_lab.steps.job_settings import TrainingSettings

if TYPE_CHECKING:
    from leakbound.channels.channel import GaussianChannel
    from leakbound_lab.training.request import TrainingRequest

_SHOWN = 2000  # records of each split in all points of a curve but the last


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a training for each run that has rounds."""
    for slug, run in table.runs.items():
        if run.rounds > 0:
            yield new_job(
                table.config,
                "train",
                slug,
                training_settings(table, run) | {"replicas": run.replicas, "rates": table.rates[slug]},
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
    early = (table.config.training.evaluations - 1) * sum(min(_SHOWN, part) for part in parts)
    yield Work("predict", slots * (early + len(table.lengths[run.slug]) * sum(parts)), run.model, size.colors)
    yield Work("parameters", 4 * table.kept(run), run.model, size.colors)


def train(
    settings: TrainingSettings,
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
    """
    from leakbound_lab.steps.earlier import Earlier, train_missing
    from leakbound_lab.training.leakage_statement import leakage_so_far, statement

    noise, source = read_channel(channel, spectrum)
    began = time.time()
    request = training_request(
        settings, dataset, noise, checkpoint=weights.with_name(f"checkpoint-{code}.pt")
    )
    if channel is not None and noise is not None and source is not None:
        inputs.check_passing(request.dataset, channel, noise, source, dataset)
    read = {"dataset": dataset, "channel": channel, "spectrum": spectrum}
    files = {"weights": weights, "rates": rates, "rows": rows, "provenance": provenance}
    earlier = Earlier(files, plain, read, request.device, code)
    request = replace(request, leakage_after=leakage_so_far(request, source))
    trained = train_missing(request, earlier.networks(), keeps_all=settings.rates == "all")
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


def training_settings(table: RunTable, run: Run) -> dict[str, Any]:
    """Return the plain values that a training of a run depends on, without the number of replicas.

    Args:
        table: Runs of the configuration.
        run: One of these runs.
    """
    config = table.config
    defense = table.defense_of(run)
    lengths = table.lengths[run.slug]
    defaults = {"precision"} if config.training.precision == "float32" else set()
    return {
        "dataset": run.dataset,
        "model": run.model,
        "defense": defense.model_dump(mode="json"),
        "slug": run.slug,
        "level": run.level,
        "batch_size": run.batch_size,
        "seed": config.seed,
        **table.noise_settings(defense),
        **({"lengths": list(lengths)} if len(lengths) > 1 else {}),
        "device": config.device_of("train"),
        "training": config.training.model_dump(mode="json", exclude=defaults),
        "rounds": run.rounds,
    }


def looked_up(table: RunTable, run: Run) -> dict[str, Any]:
    """Return the names that the training of a run looks up, for :func:`leakbound_lab.jobs.job.new_job`.

    Args:
        table: Runs of the configuration.
        run: One of these runs.
    """
    defense = table.config.defense(run.defense)
    return {"uses": {"models": [run.model], "mechanisms": [defense.mechanism]}, "modules": defense.modules()}


def training_request(
    settings: TrainingSettings, dataset: Path, channel: GaussianChannel | None, **more: Any
) -> TrainingRequest:
    """Make the request of a training.

    Args:
        settings: Settings of the job.
        dataset: File of the images.
        channel: Channel of the defense, if it has one.
        **more: Further attributes of the request.
    """
    from leakbound_lab.training.request import TrainingRequest

    return TrainingRequest(
        dataset=inputs.read_dataset(dataset),
        model=settings.model,
        defense=settings.defense,
        level=settings.level,
        batch_size=settings.batch_size,
        rounds=settings.rounds,
        replicas=settings.replicas,
        learning_rates=settings.defense.learning_rates or settings.training.learning_rates,
        lengths=settings.lengths,
        config=settings.training,
        seed=settings.seed,
        slug=settings.slug,
        privacy_noise=settings.privacy_noise,
        device=inputs.device_name(settings.device),
        channel=channel,
        **more,
    )


STEP = Step(TrainingSettings, train, jobs)
