"""Tables of federated averaging."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.storage.tables import read_federated
from leakbound_lab.config.federated import FederatedConfig, FederatedRun
from leakbound_lab.config.settings import part_of
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.paths import output
from leakbound_lab.steps.inputs import read_dataset

_CLOSED = "composition"  # the table of closed forms, which needs no runs
_USED = {"models", "n_clients", "communication_rounds", "mi_budget"}


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    config = table.config
    section = config.federated
    if section is None:
        return
    for name, runs in table.federated.items():
        settings: dict[str, Any] = {"table": name}
        arguments: dict[str, Any] = {"runs": runs}
        files = [table.file("federate", run.slug, "rows") for run in runs]
        uses: dict[str, list[str]] = {}
        if name == _CLOSED:
            settings["federated"] = section.model_dump(mode="json", include=_USED)
            arguments = {"federated": part_of(section, _USED)}
            files = [table.file("prepare", dataset) for dataset in section.models]
            uses = {"models": sorted(set(section.models.values()))}
        yield new_job(
            config,
            "federated",
            name,
            settings,
            arguments=arguments,
            inputs={"runs": files},
            uses=uses,
            purpose="federated",
        )


def federated(
    root: Path, rows: Path, runs: Sequence[FederatedRun] = (), federated: FederatedConfig | None = None
) -> None:
    """Collect federated runs in one table, or compute how much all rounds together reveal.

    Args:
        root: Folder of the results, whose runs are read.
        rows: Table to write.
        runs: Runs of the table.
        federated: Networks, clients, rounds and budget of closed forms, for a table that needs no runs.
    """
    from leakbound_lab.papers.pmidp import run_tables

    if federated is None:
        tables = {run: read_federated(output(root, "federate", run.slug, "rows")) for run in runs}
        storage.write_rows(rows, run_tables.tabulate_runs(tables))
        return
    datasets = {name: read_dataset(output(root, "prepare", name, "out")) for name in federated.models}
    networks = {
        name: (model, run_tables.parameters(model, datasets[name]))
        for name, model in federated.models.items()
    }
    table = run_tables.composition(
        networks, federated.n_clients, federated.communication_rounds, federated.mi_budget
    )
    storage.write_rows(rows, table)


STEP = Step(federated, jobs, final=True)
