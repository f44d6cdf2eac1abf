"""Federated averaging of one setting with all its seeds."""

import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound_lab.config.federated import ADAPTED, FederatedConfig, FederatedRun
from leakbound_lab.config.settings import PrivacyNoise, part_of
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.unit_costs import STEP_RECORDS, Work
from leakbound_lab.steps.inputs import BARE, device_name, read_dataset, remove_checkpoints, write_provenance
from leakbound_lab.steps.job_settings import Device

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


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each federated run, even if several tables show it."""
    config = table.config
    section = config.federated
    if section is None:
        return
    for slug, run in table.all_federated().items():
        replicas = section.replicas or config.replicas
        settings = {
            "run": run.model_dump(mode="json"),
            "most_clients": None if section.records else section.most_clients(),
            "replicas": replicas,
            "federated": section.model_dump(mode="json", include=_USED),
        }
        arguments = {
            "run": run,
            "most_clients": settings["most_clients"],
            "replicas": replicas,
            "federated": part_of(section, _USED),
            "seed": config.seed,
            **({} if run.mi_budget is None else {"privacy_noise": config.privacy_noise}),
            "device": config.device_of("train"),
        }
        yield new_job(
            config,
            "federate",
            slug,
            settings,
            arguments=arguments,
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
    run: FederatedRun,
    most_clients: int | None,
    replicas: int,
    federated: FederatedConfig,
    seed: int,
    device: Device,
    plain: dict[str, Any],
    dataset: Path,
    rows: Path,
    provenance: Path,
    privacy_noise: PrivacyNoise = "seeded",
    code: str = BARE,
) -> None:
    """Run one setting of federated averaging with all its seeds. A killed job resumes from the last checkpoint.

    Args:
        run: The setting.
        most_clients: Largest number of clients of any run, among whom the members are divided. None if clients have
            the records that ``federated`` states.
        replicas: Number of seeds.
        federated: What all runs share.
        seed: Seed of the configuration.
        device: Device of the training.
        plain: These settings as plain values, for the provenance.
        dataset: Images to read.
        rows: Table to write, of curves and ends.
        provenance: Record to write.
        privacy_noise: Whether noise is ``seeded`` or ``secure``.
        code: Fingerprint of the code, which a checkpoint is of.
    """
    from leakbound.accounting.releases import federated_releases
    from leakbound_lab.papers.pmidp.averaging import FederatedRequest, train_federation
    from leakbound_lab.papers.pmidp.run_tables import threat_table

    images = read_dataset(dataset)
    device_in_use = device_name(device)
    began = time.time()
    request = FederatedRequest(
        dataset=images,
        run=run,
        config=federated,
        records=federated.records or max(1, images.drawing.members // (most_clients or 1)),
        seed=seed,
        privacy_noise=privacy_noise,
        replicas=replicas,
        device=device_in_use,
        checkpoint=rows.with_name(f"checkpoint-{code}.pt"),
    )
    result = train_federation(request)
    storage.write_rows(rows, result.rows)
    ends = result.rows[result.rows["metric"] == "diverged"]
    write_provenance(
        provenance,
        plain,
        {"dataset": dataset},
        device_in_use,
        began,
        code=code,
        learning_rate=federated.learning_rate,
        records=request.records,
        dimension=result.dimension,
        diverged=[bool(value) for value in ends["value"]],
        leakage=threat_table(result.rows, ends.loc[ends["value"] == 0, "replica"].tolist()),
        released=[
            release.to_dict()
            for release in federated_releases(adapted=run.scheme in ADAPTED and federated.clip_rate > 0)
        ],
    )
    remove_checkpoints(rows)


STEP = Step(federate, jobs)
