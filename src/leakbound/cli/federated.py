"""Commands: federated averaging under a mutual-information budget, and its tables."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from leakbound import storage
from leakbound.cli.figures import RootOption
from leakbound.cli.files import (
    DatasetOption,
    SettingsOption,
    check_outputs,
    device_label,
    device_name,
    plain_settings,
    read_dataset,
    read_record,
    read_settings,
    read_table,
)
from leakbound.cli.jobs import FederatedJob, FederateJob, LogFederatedJob
from leakbound.cli.tracking import LiveOption, MarkerOption, PresetOption, watching

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.jobs.federated_run import FederatedRun

RowsOption = Annotated[Path, typer.Option(help="Tidy rows, Parquet.")]
_FOLDER = "federated"


def federate(
    settings: SettingsOption,
    dataset: DatasetOption,
    rows: RowsOption,
    provenance: Annotated[Path, typer.Option(help="Provenance with the threat table, JSON.")],
    code: Annotated[str, typer.Option(help="Code that trains; a checkpoint of other code is not resumed.")] = "bare",
    live: LiveOption = None,
    preset: PresetOption = "bare",
) -> None:
    """Run one setting of federated averaging with all its seeds; a killed job resumes from the last checkpoint."""
    from leakbound.federated.averaging import FederatedRequest
    from leakbound.federated.averaging import federate as run_federated
    from leakbound.federated.tables import threat_table
    from leakbound.jobs.federated_run import FederatedRun
    from leakbound.storage.provenance import collect

    check_outputs(rows, provenance)
    job = read_settings(settings, FederateJob)
    images = read_dataset(dataset)
    config = job.federated
    device = device_name(job.device)
    began = time.time()
    run = FederatedRun(**job.run.model_dump())
    facts = _facts(run, preset, config.communication_rounds, config.batch_size, job.replicas)
    with watching(live, **facts) as on_rows:
        request = FederatedRequest(
            dataset=images,
            run=run,
            config=config,
            records=config.records or max(1, len(images.train) // (job.most_clients or 1)),
            seed=job.seed,
            privacy_noise=job.privacy_noise,
            replicas=job.replicas,
            device=device,
            checkpoint=rows.with_name(f"checkpoint-{code}.pt"),
            on_rows=None if on_rows is None else lambda kept: on_rows(_curves(kept)),
        )
        result = run_federated(request)
    storage.write_rows(rows, result.rows)
    ends = result.rows[result.rows["metric"] == "diverged"]
    record = collect(
        plain_settings(settings),
        inputs={"dataset": dataset},
        device=device_label(device),
        seconds=time.time() - began,
        started=began,
        code=code,
        learning_rate=config.learning_rate,
        records=request.records,
        dimension=result.dimension,
        diverged=[bool(value) for value in ends["value"]],
        leakage=threat_table(result.rows, ends.loc[ends["value"] == 0, "replica"].tolist()),
    )
    storage.write_json(provenance, record)
    for path in rows.parent.glob("checkpoint-*.pt"):
        path.unlink()


def federated(settings: SettingsOption, root: RootOption, rows: RowsOption) -> None:
    """Gather federated runs into one table, or compute what rounds tell together."""
    from leakbound.federated import tables
    from leakbound.jobs.federated_run import FederatedRun

    check_outputs(rows)
    job = read_settings(settings, FederatedJob)
    if (config := job.federated) is not None:
        networks = {
            name: _network(root / "data" / f"{name}.safetensors", model) for name, model in config.models.items()
        }
        table = tables.composition(networks, config.n_clients, config.communication_rounds, config.mi_budget)
        storage.write_rows(rows, table)
        return
    runs = [FederatedRun(**run.model_dump()) for run in job.runs]
    storage.write_rows(rows, tables.tabulate({run: _kept(root / _FOLDER / run.slug) for run in runs}))


def _kept(folder: Path) -> pd.DataFrame:
    """Rows that a federated run has written."""
    numbers: dict[str, Literal["number", "text"]] = dict.fromkeys(("replica", "communication_round", "unit"), "number")
    return read_table(folder / "rows.parquet", {**numbers, "metric": "text", "value": "number"}, "federate")


def _network(dataset: Path, name: str) -> tuple[str, int]:
    """A network's name, and how many parameters it has for the images of a dataset."""
    import torch

    from leakbound.models import build

    images = read_dataset(dataset)
    model = build(name, images.colors, len(images.classes), torch.Generator().manual_seed(0))
    return name, sum(parameter.numel() for parameter in model.parameters())


def log_federated(
    settings: SettingsOption,
    root: RootOption,
    marker: MarkerOption,
) -> None:
    """Write what a finished federated run has left to MLflow; a store that is away is noted."""
    from leakbound import tracking
    from leakbound.jobs.federated_run import FederatedRun

    check_outputs(marker)
    job = read_settings(settings, LogFederatedJob)
    run = FederatedRun(**job.run.model_dump())
    folder = root / _FOLDER / run.slug
    provenance = read_record(folder / "provenance.json", "federate")
    kept = _kept(folder)
    scores = kept[(kept["unit"] == -1) & kept["metric"].str.startswith(("final_", "leak_", "weight_"))]
    facts = _facts(run, job.preset, job.communication_rounds, job.batch_size, job.replicas)
    files = [folder / "provenance.json"]
    record = tracking.describe(
        tracking.RunFacts(**facts, papers=("pmidp",), figures=job.figures),
        _curves(kept),
        {"federated": scores.assign(variant="")},
        provenance,
        files=files,
    )
    outcome = tracking.log(record, job.uri, marker)
    sys.stderr.write(f"{run.slug}: {outcome.status} {outcome.reason or ''}\n")


def _facts(run: FederatedRun, preset: str, rounds: int, batch_size: int, replicas: int) -> dict[str, Any]:
    """What MLflow calls a run, while it is trained and afterwards."""
    return {
        "preset": preset,
        "slug": f"{_FOLDER}/{run.slug}",
        "dataset": run.dataset,
        "model": run.model,
        "defense": run.scheme,
        "level": run.mi_budget,
        "rounds": rounds,
        "batch_size": batch_size,
        "replicas": replicas,
        "mechanism": "federated",
    }


def _curves(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that are curves over rounds."""
    kept = rows[(rows["unit"] == -1) & rows["metric"].isin(["train_loss", "test_accuracy", "threshold"])]
    return kept.rename(columns={"communication_round": "step"})[["replica", "step", "metric", "value"]]
