"""Commands: the learning-rate search, and training itself."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from leakbound import storage
from leakbound.cli.files import (
    ChannelOption,
    DatasetOption,
    SettingsOption,
    SpectrumOption,
    check_outputs,
    device_label,
    device_name,
    plain_settings,
    read_channel,
    read_dataset,
    read_settings,
    read_table,
)
from leakbound.cli.jobs import TrainJob, TuneJob
from leakbound.cli.tracking import LiveOption, PresetOption, watching

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.accounting.event import PrivacyEvent
    from leakbound.channels.channel import Channel, Spectrum
    from leakbound.training.request import TrainingRequest


def tune(
    settings: SettingsOption,
    dataset: DatasetOption,
    out: Annotated[Path, typer.Option(help="Trials, Parquet.")],
    channel: ChannelOption = None,
    spectrum: SpectrumOption = None,
) -> None:
    """Try each learning rate on a held-out part of the members; every defense and level tries equally many."""
    from leakbound.training.search import search_learning_rate

    check_outputs(out)
    job = read_settings(settings, TuneJob)
    found, _ = read_channel(channel, spectrum)
    slug = f"{job.dataset}/{job.model}/{job.variant}/b{job.batch_size}"
    request = _request(job, dataset, found, rounds=0, learning_rate=1.0, slug=slug)
    search = search_learning_rate(request)
    storage.write_rows(out, search.table.assign(chosen=search.table["learning_rate"] == search.learning_rate))


def train(
    settings: SettingsOption,
    dataset: DatasetOption,
    trials: Annotated[Path, typer.Option(help="Learning-rate trials, written by `tune`.")],
    weights: Annotated[Path, typer.Option(help="Weights of all replicas, safetensors.")],
    rows: Annotated[Path, typer.Option(help="Curves, Parquet.")],
    provenance: Annotated[Path, typer.Option(help="Provenance with the privacy events, JSON.")],
    channel: ChannelOption = None,
    spectrum: SpectrumOption = None,
    code: Annotated[str, typer.Option(help="Code that trains; a checkpoint of other code is not resumed.")] = "bare",
    live: LiveOption = None,
    preset: PresetOption = "bare",
) -> None:
    """Train all replicas of a run; a killed job resumes from the checkpoint beside its outputs."""
    from leakbound.storage.provenance import collect
    from leakbound.training.trainers import train as train_run

    check_outputs(weights, rows, provenance)
    job = read_settings(settings, TrainJob)
    found, source = read_channel(channel, spectrum)
    searched = _trials(trials)
    learning_rate = float(searched.loc[searched["chosen"], "learning_rate"].iloc[0])
    asked = {"rounds": job.rounds, "slug": job.slug, "replicas": job.replicas}
    checkpoint = weights.with_name(f"checkpoint-{code}.pt")
    began = time.time()
    facts = {"dataset": job.dataset, "model": job.model, "defense": job.variant.partition("-")[0], "level": job.level}
    facts |= {"rounds": job.rounds, "batch_size": job.batch_size, "mechanism": job.defense.mechanism}
    with watching(live, preset=preset, slug=job.slug, replicas=job.replicas, **facts) as on_rows:
        more = {"learning_rate": learning_rate, "checkpoint": checkpoint, "on_rows": on_rows}
        result = train_run(_request(job, dataset, found, **more, **asked))
    storage.write_arrays(weights, {name: tensor.cpu().numpy() for name, tensor in result.weights.items()})
    storage.write_rows(rows, result.curves)
    files = {"dataset": dataset, "trials": trials, "channel": channel, "spectrum": spectrum}
    record = collect(
        plain_settings(settings),
        inputs={role: path for role, path in files.items() if path is not None},
        device=device_label(device_name(job.device)),
        seconds=time.time() - began,
        started=began,
        code=code,
        learning_rate=learning_rate,
        trials=searched.astype(object).where(searched.notna(), None).to_dict("records"),  # NaN: diverged
        events=[event.to_dict() for event in result.events],
        diverged=result.diverged,
        leakage=_leakage(max(result.events, key=lambda event: event.uses), found, source),
    )
    storage.write_json(provenance, record)
    for path in weights.parent.glob("checkpoint-*.pt"):
        path.unlink()


def _trials(path: Path) -> pd.DataFrame:
    """Trials of a learning-rate search, of which exactly one has been chosen."""
    searched = read_table(path, {"learning_rate": "number", "chosen": "truth"}, "tune")
    chosen = searched.loc[searched["chosen"], "learning_rate"] if len(searched) else searched["learning_rate"]
    if len(chosen) != 1 or not (math.isfinite(chosen.iloc[0]) and chosen.iloc[0] > 0):
        raise storage.DamagedFileError(path, f"it has {len(chosen)} chosen learning rates, not one above 0")
    return searched


def _request(job: TuneJob, dataset: Path, channel: Channel | None, **more: Any) -> TrainingRequest:
    """What searching and training ask for."""
    from leakbound.training.request import TrainingRequest

    return TrainingRequest(
        dataset=read_dataset(dataset),
        model=job.model,
        defense=job.defense,
        level=job.level,
        batch_size=job.batch_size,
        config=job.training,
        seed=job.seed,
        privacy_noise=job.privacy_noise,
        device=device_name(job.device),
        channel=channel,
        **more,
    )


def _leakage(event: PrivacyEvent, channel: Channel | None, spectrum: Spectrum | None) -> dict[str, int | float] | None:
    """What the uses of the channel tell, in nats; none without a channel."""
    from leakbound.accounting import leakage
    from leakbound.channels.channel import signal_to_noise

    if channel is None or spectrum is None:
        return None
    return dataclasses.asdict(leakage(event, signal_to_noise(channel, spectrum)))
