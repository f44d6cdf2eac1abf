"""Tables of federated averaging."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Strict

from leakbound import storage
from leakbound.storage.tables import read_federated
from leakbound_lab.config.federated import FederatedConfig, FederatedRun
from leakbound_lab.config.settings import Name
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.paths import output
from leakbound_lab.steps.inputs import read_dataset
from leakbound_lab.steps.job_settings import JobSettings

_CLOSED = "composition"  # the table of closed forms, which needs no runs
_USED = {"models", "n_clients", "communication_rounds", "mi_budget"}


class FederatedSettings(JobSettings):
    """A table of federated runs, or of closed forms about their networks."""

    table: Name
    runs: Annotated[tuple[FederatedRun, ...], Strict(False)] = ()
    federated: FederatedConfig | None = None


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    config = table.config
    section = config.federated
    if section is None:
        return
    for name, runs in table.federated.items():
        settings: dict[str, Any] = {"table": name, "runs": [run.model_dump() for run in runs]}
        files = [table.file("federate", run.slug, "rows") for run in runs]
        uses: dict[str, list[str]] = {}
        if name == _CLOSED:
            settings = {"table": name, "federated": section.model_dump(mode="json", include=_USED)}
            files = [table.file("prepare", dataset) for dataset in section.models]
            uses = {"models": sorted(set(section.models.values()))}
        yield new_job(
            config, "federated", name, settings, inputs={"runs": files}, uses=uses, purpose="federated"
        )


def federated(settings: FederatedSettings, root: Path, rows: Path) -> None:
    """Collect federated runs in one table, or compute how much all rounds together reveal."""
    from leakbound_lab.papers.pmidp import run_tables

    config = settings.federated
    if config is None:
        tables = {run: read_federated(output(root, "federate", run.slug, "rows")) for run in settings.runs}
        storage.write_rows(rows, run_tables.tabulate_runs(tables))
        return
    datasets = {name: read_dataset(output(root, "prepare", name, "out")) for name in config.models}
    networks = {
        name: (model, run_tables.parameters(model, datasets[name])) for name, model in config.models.items()
    }
    table = run_tables.composition(networks, config.n_clients, config.communication_rounds, config.mi_budget)
    storage.write_rows(rows, table)


STEP = Step(FederatedSettings, federated, jobs, final=True)
