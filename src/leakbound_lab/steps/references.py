"""Reference networks of a run, with which attacks compare its networks."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.commands.files import read_channel
from leakbound.storage.tables import RATES, read_table
from leakbound_lab.config.attacks import MOST_REFERENCES, ReferenceRecords
from leakbound_lab.config.training import TrainingSettings
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.jobs.runs import Run
from leakbound_lab.steps import inputs
from leakbound_lab.steps.train import looked_up, training_settings


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each run that is attacked with reference networks."""
    records = table.config.attacks.membership.reference_records
    records_setting = (
        {} if records == "pool" else {"reference_records": records}
    )  # earlier versions had the pool alone
    for slug, run in table.runs.items():
        if table.references(slug):
            yield new_job(
                table.config,
                "references",
                slug,
                {"dataset": run.dataset},
                arguments={
                    "training": training_settings(table, run, table.references(slug)),
                    **records_setting,
                },
                inputs={
                    "dataset": table.file("prepare", run.dataset),
                    "rates": table.file("train", slug, "rates"),
                    **table.channel_files(run),
                },
                **looked_up(table, run),
                purpose=table.first_study[slug],
                work=partial(_work, table, run),
            )


def _work(table: RunTable, run: Run) -> Iterable[Work]:
    """Yield steps of all reference networks, and points of their curves: one, unless all lengths are kept."""
    size = table.size(run.dataset)
    slots = table.reference_networks(run.slug)
    yield table.step_work(run, slots * run.rounds, slots)
    lengths = len(table.lengths[run.slug])
    points = lengths if lengths == 1 else lengths + table.config.training.evaluations - 1
    yield Work(
        "predict", points * slots * (size.members + size.validation + size.test), run.model, size.colors
    )
    yield Work("parameters", 4 * lengths * slots, run.model, size.colors)


def references(
    training: TrainingSettings,
    plain: dict[str, Any],
    dataset: Path,
    rates: Path,
    weights: Path,
    trained: Path,
    provenance: Path,
    channel: Path | None = None,
    spectrum: Path | None = None,
    reference_records: ReferenceRecords = "pool",
    code: str = inputs.BARE,
) -> None:
    """Train reference networks on other records, at every learning rate and length that a run keeps.

    A killed job resumes from the checkpoint next to its outputs, and those that an earlier call has trained
    are not trained again.

    Args:
        training: Settings of the run's training. Their ``replicas`` is the number of reference networks at each
            learning rate, and for each network of the run if they are trained on its candidates.
        plain: These settings as plain values, for the provenance.
        dataset: Images to read.
        rates: Table of the run's networks to read.
        weights: Weights of the reference networks to write.
        trained: Table to write, with a row for each of them.
        provenance: Record to write.
        channel: Channel of the defense to read, if it has one.
        spectrum: Spectrum of that channel.
        reference_records: Records that the reference networks are trained on.
        code: Fingerprint of the code behind the result.
    """
    from leakbound_lab.steps.earlier import Earlier, train_missing
    from leakbound_lab.training.leakage_statement import statement
    from leakbound_lab.training.request import Slot, reference_request, training_request

    began = time.time()
    noise, source = read_channel(channel, spectrum)
    kept = read_table(rates, RATES, "train").query("kept")
    targets = map(Slot, kept["replica"].tolist(), kept["learning_rate"].tolist())
    request = training_request(
        replace(training, device=inputs.device_name(training.device)),
        inputs.read_dataset(dataset),
        noise,
        weights.with_name(f"checkpoint-{code}.pt"),
    )
    of_candidates = reference_records == "candidates"
    request = reference_request(
        request, training.replicas, kept["learning_rate"], targets if of_candidates else ()
    )
    read = {"dataset": dataset, "channel": channel, "spectrum": spectrum}
    files = {"weights": weights, "rates": trained, "provenance": provenance}
    earlier = Earlier(files, plain, read, request.device, code)
    networks = train_missing(request, earlier.networks(), keeps_all=True)
    if of_candidates:
        networks.rates["target"] = networks.rates["replica"] // MOST_REFERENCES
    storage.write_arrays(weights, networks.arrays, {"frozen": networks.frozen} if networks.frozen else None)
    storage.write_rows(trained, networks.rates)
    inputs.write_provenance(
        provenance,
        plain,
        {**read, "rates": rates},
        request.device,
        began,
        code=code,
        precision=request.config.precision,
        events=[event.to_dict() for event in networks.events],
        diverged=networks.slots["diverged"].tolist(),
        **statement(request, networks.events, source, inputs.covariance_of(channel) if channel else None),
    )
    earlier.keep()
    inputs.remove_checkpoints(weights)


STEP = Step(references, jobs)
