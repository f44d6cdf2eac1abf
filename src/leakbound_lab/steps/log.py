"""Finished runs in MLflow, one writer at a time. The files stay authoritative."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound.storage.tables import CURVES, RATES, SCORES, read_federated, read_record, read_table
from leakbound_lab.config.federated import FederatedConfig, FederatedRun
from leakbound_lab.figures.style import style_of
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.tracking.run_records import RunFacts

if TYPE_CHECKING:
    import pandas as pd

_OF_TRAINING = {"provenance": "provenance", "curves": "rows", "rates": "rates"}
_OF_FEDERATED = {"provenance": "provenance", "federated": "rows"}


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each run and each federated run."""
    if not table.config.tracking.enabled:
        return
    for slug in table.runs:
        yield _of_run(table, slug)
    if (section := table.config.federated) is not None:
        for run in table.all_federated().values():
            yield _of_federated_run(table, section, run)


def _of_run(table: RunTable, slug: str) -> Job:
    """Return the job that logs a run."""
    run = table.runs[slug]
    attacks = {name: table.file("attack", f"{slug}/{name}", "rows") for name in table.attacks[slug]}
    files: dict[str, Any] = {"attacks": attacks, **table.channel_files(run)}
    files.pop("spectrum", None)
    if run.rounds > 0:
        files |= {option: table.file("train", slug, role) for option, role in _OF_TRAINING.items()}
    else:
        files["provenance"] = table.file("attack", f"{slug}/{next(iter(attacks))}", "provenance")
    studies = {name for name, slugs in table.studies.items() if slug in slugs}
    figures = [key for key, figure in table.figures.items() if figure.study in studies]
    label = table.config.defense(run.defense).level_label(run.level) if run.defense != "clipping" else ""
    facts = {**run.facts(), "level_label": label}
    return _job(table, facts, figures, files, table.first_study[slug], over_units=table.over_units(attacks))


def _of_federated_run(table: RunTable, section: FederatedConfig, run: FederatedRun) -> Job:
    """Return the job that logs a federated run."""
    tables = {f"federated/{name}" for name, runs in table.federated.items() if run in runs}
    figures = sorted(key for key, figure in table.figures.items() if figure.table in tables)
    facts = run.facts(
        section.communication_rounds, section.batch_size, section.replicas or table.config.replicas
    )
    files: dict[str, Any] = {"attacks": {}}
    files |= {option: table.file("federate", run.slug, role) for option, role in _OF_FEDERATED.items()}
    return _job(table, facts, figures, files, "federated")


def _job(
    table: RunTable,
    facts: dict[str, Any],
    figures: list[str],
    files: dict[str, Any],
    purpose: str,
    **arguments: Any,
) -> Job:
    """Return the job that logs one run, with further arguments of its function."""
    config = table.config
    run = RunFacts(
        preset=config.preset,
        defense_label=style_of(facts["defense"]).label,
        papers=tuple(sorted({key.partition("/")[0] for key in figures})),
        figures=tuple(figures),
        **facts,
    )
    arguments |= {"run": run, "uri": config.tracking.uri}
    return new_job(config, "log", run.slug, {}, arguments=arguments, inputs=files, purpose=purpose)


def log(
    run: RunFacts,
    uri: str,
    provenance: Path,
    marker: Path,
    attacks: dict[str, Path],
    over_units: Mapping[str, str] | None = None,
    curves: Path | None = None,
    rates: Path | None = None,
    federated: Path | None = None,
    channel: Path | None = None,
) -> None:
    """Write the results of a finished run to MLflow. If the store is unavailable, `sync` sends them later.

    Args:
        run: Name and coordinates of the run.
        uri: Address of the store.
        provenance: Record of the training, or of an attack on an untrained network, to read.
        marker: File to write, which says what was sent.
        attacks: Attack to its rows to read.
        over_units: Attack to its summary over units, ``mean`` or ``median``.
        curves: Curves of the training to read.
        rates: Its candidate learning rates to read.
        federated: Rows of a federated run to read.
        channel: Channel of the run.
    """
    from leakbound_lab.tracking.run_description import channel_facts, describe_run
    from leakbound_lab.tracking.sending import log_run

    facts = read_record(provenance, "train")
    tried = read_table(rates, RATES, "train") if rates else None
    points = read_table(curves, CURVES, "train") if curves else None
    attacked = {name: read_table(path, SCORES, "attack") for name, path in attacks.items()}
    scores = {name: table[table["chosen"]] for name, table in attacked.items()}
    if points is not None and tried is not None:
        slot = [name for name in ("replica", "learning_rate", "length") if name in points]
        points = points.merge(tried.loc[tried["chosen"], slot], on=slot)
        scores["rates"] = _candidates(tried)
    if federated:
        from leakbound_lab.papers.pmidp import run_tables

        federation = read_federated(federated)
        points = run_tables.curves(federation)
        scores = {"federated": run_tables.final_scores(federation)}
    record = describe_run(
        run,
        points,
        scores,
        facts,
        channel=channel_facts(channel) if channel else None,
        files=[provenance, *([channel] if channel else [])],
        over_units=over_units,
    )
    outcome = log_run(record, uri, marker)
    sys.stderr.write(f"{run.slug}: {outcome.status} {outcome.reason}\n")


def _candidates(tried: pd.DataFrame) -> pd.DataFrame:
    """Return validation values of every candidate learning rate as rows of an attack, with the rate as variant."""
    full = tried[tried["length"] == "full"] if "length" in tried else tried
    candidates = full.assign(variant=full["learning_rate"].map("{:g}".format), unit=-1)
    return candidates.melt(
        ["replica", "variant", "unit"], ["validation_accuracy", "validation_loss"], var_name="metric"
    )


STEP = Step(log, jobs, final=True)
