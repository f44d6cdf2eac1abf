"""Federated averaging of one setting with all its seeds."""

import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound_lab.config.federated import ADAPTED, FederatedConfig, FederatedRun
from leakbound_lab.config.settings import Count, Replicas
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.unit_costs import STEP_RECORDS, Work
from leakbound_lab.steps.inputs import BARE, device_name, read_dataset, remove_checkpoints, write_provenance
from leakbound_lab.steps.job_settings import Device, SeededSettings

_USED = {
    "split",
    "concentration",
    "communication_rounds",
    "local_epochs",
    "batch_size",
    "learning_rate",
    "clipped",
    "clip_rate",
    "least_budget",
    "evaluations",
    "max_stack",
    "records",
    "checkpoint_seconds",
}


class FederateSettings(SeededSettings):
    """A federated run with all its seeds."""

    run: FederatedRun
    most_clients: Count | None
    replicas: Replicas
    federated: FederatedConfig
    device: Device


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each federated run, even if several tables show it."""
    config = table.config
    section = config.federated
    if section is None:
        return
    for slug, run in table.all_federated().items():
        settings = {
            "run": run.model_dump(),
            "most_clients": None if section.records else section.most_clients(),
            "replicas": section.replicas or config.replicas,
            "federated": section.model_dump(mode="json", include=_USED),
            "seed": config.seed,
            **({} if run.mi_budget is None else {"privacy_noise": config.privacy_noise}),
            "device": config.device_of("train"),
        }
        yield new_job(
            config,
            "federate",
            slug,
            settings,
            inputs={"dataset": table.file("prepare", run.dataset)},
            uses={"models": [run.model]},
            purpose="federated",
            work=partial(_work, table, section, run),
        )


def _work(table: RunTable, section: FederatedConfig, run: FederatedRun) -> Iterable[Work]:
    """Yield local steps of all clients, without evaluations."""
    size = table.size(run.dataset)
    records = section.records_each(size.members)
    batch = min(section.batch_size, records)
    rounds = (section.replicas or table.config.replicas) * section.communication_rounds
    steps = rounds * run.n_clients * section.local_epochs * math.ceil(records / batch)
    yield Work("step_none", steps * batch / STEP_RECORDS, run.model, size.colors, run.n_clients)


def federate(
    settings: FederateSettings,
    plain: dict[str, Any],
    dataset: Path,
    rows: Path,
    provenance: Path,
    code: str = BARE,
) -> None:
    """Run one setting of federated averaging with all its seeds. A killed job resumes from the last checkpoint."""
    from leakbound.accounting.releases import federated_releases
    from leakbound_lab.papers.pmidp.averaging import FederatedRequest, train_federation
    from leakbound_lab.papers.pmidp.run_tables import threat_table

    images = read_dataset(dataset)
    config = settings.federated
    device = device_name(settings.device)
    began = time.time()
    run = settings.run
    request = FederatedRequest(
        dataset=images,
        run=run,
        config=config,
        records=config.records or max(1, images.drawing.members // (settings.most_clients or 1)),
        seed=settings.seed,
        privacy_noise=settings.privacy_noise,
        replicas=settings.replicas,
        device=device,
        checkpoint=rows.with_name(f"checkpoint-{code}.pt"),
    )
    result = train_federation(request)
    storage.write_rows(rows, result.rows)
    ends = result.rows[result.rows["metric"] == "diverged"]
    write_provenance(
        provenance,
        plain,
        {"dataset": dataset},
        device,
        began,
        code=code,
        learning_rate=config.learning_rate,
        records=request.records,
        dimension=result.dimension,
        diverged=[bool(value) for value in ends["value"]],
        leakage=threat_table(result.rows, ends.loc[ends["value"] == 0, "replica"].tolist()),
        released=[
            release.to_dict()
            for release in federated_releases(adapted=run.scheme in ADAPTED and config.clip_rate > 0)
        ],
    )
    remove_checkpoints(rows)


STEP = Step(FederateSettings, federate, jobs)
