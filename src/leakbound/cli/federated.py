"""Commands: federated averaging under a mutual-information budget, and its tables."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.figures import RootOption
from leakbound.cli.files import (
    DatasetOption,
    SettingsOption,
    device_label,
    device_name,
    read_dataset,
    read_settings,
)
from leakbound.cli.tracking import MarkerOption

RowsOption = Annotated[Path, typer.Option(help="Tidy rows, Parquet.")]
_FOLDER = "federated"


def federate(
    settings: SettingsOption,
    dataset: DatasetOption,
    rows: RowsOption,
    provenance: Annotated[Path, typer.Option(help="Provenance with the threat table, JSON.")],
    code: Annotated[str, typer.Option(help="Code that trains; a checkpoint of other code is not resumed.")] = "bare",
) -> None:
    """Run one setting of federated averaging with all its seeds; a killed job resumes from the last checkpoint."""
    from leakbound.config import FederatedConfig
    from leakbound.federated.averaging import FederatedRequest
    from leakbound.federated.averaging import federate as run_federated
    from leakbound.federated.run import FederatedRun
    from leakbound.federated.tables import threat_table
    from leakbound.provenance import collect

    given = read_settings(settings)
    images = read_dataset(dataset)
    config = FederatedConfig.model_validate(given["federated"])
    device = device_name(given["device"])
    began = time.time()
    request = FederatedRequest(
        dataset=images,
        run=FederatedRun(**given["run"]),
        config=config,
        records=config.records or max(1, len(images.train) // given["most_clients"]),
        seed=given["seed"],
        privacy_noise=given.get("privacy_noise", "seeded"),
        replicas=given["replicas"],
        device=device,
        checkpoint=rows.with_name(f"checkpoint-{code}.pt"),
    )
    result = run_federated(request)
    storage.write_rows(rows, result.rows)
    ends = result.rows[result.rows["metric"] == "diverged"]
    record = collect(
        given,
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
    from leakbound.federated.run import FederatedRun

    given = read_settings(settings)
    if given["part"] == "composition":
        config = given["federated"]
        networks = {
            name: _network(root / "data" / f"{name}.safetensors", model) for name, model in config["models"].items()
        }
        rounds = config["communication_rounds"]
        storage.write_rows(rows, tables.composition(networks, config["n_clients"], rounds, config["mi_budget"]))
        return
    runs = [FederatedRun(**values) for values in given["runs"]]
    found = {run: storage.read_rows(root / _FOLDER / run.slug / "rows.parquet") for run in runs}
    storage.write_rows(rows, tables.tabulate(found))


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
    from leakbound.federated.run import FederatedRun

    given = read_settings(settings)
    run = FederatedRun(**given["run"])
    folder = root / _FOLDER / run.slug
    provenance = storage.read_json(folder / "provenance.json")
    kept = storage.read_rows(folder / "rows.parquet")
    kept = kept[kept["unit"] == -1]
    curves = kept[kept["metric"].isin(["train_loss", "test_accuracy", "threshold"])]
    scores = kept[kept["metric"].str.startswith(("final_", "leak_", "weight_"))].assign(variant="")
    facts = tracking.RunFacts(
        preset=given["preset"],
        slug=f"{_FOLDER}/{run.slug}",
        dataset=run.dataset,
        model=run.model,
        defense=run.scheme,
        level=run.mi_budget,
        rounds=given["communication_rounds"],
        batch_size=given["batch_size"],
        replicas=given["replicas"],
        mechanism="federated",
        papers=("pmidp",),
        figures=tuple(given["figures"]),
    )
    named = curves.rename(columns={"communication_round": "step"})[["replica", "step", "metric", "value"]]
    files = [folder / "provenance.json"]
    record = tracking.describe(facts, named, {"federated": scores}, provenance, files=files)
    outcome = tracking.log(record, given["uri"], marker)
    sys.stderr.write(f"{run.slug}: {outcome.status} {outcome.reason or ''}\n")
