"""Composed bounds of all uses of the same members by a configuration: one statement for each dataset."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.leakage import Mechanism
from leakbound.accounting.statement import ReleasedItem, dataset_releases, dp_bounds
from leakbound.channels.channel import GaussianChannel, Spectrum, signal_to_noise
from leakbound.channels.composition import schedule_nats
from leakbound.channels.covariance import Moments
from leakbound.jobs.job import Job, JobList
from leakbound.jobs.paths import output
from leakbound.storage.tables import read_record

_TRAINED = {"train": ("trainings", ""), "references": ("trainings of reference networks", "references/")}


@dataclass
class _Uses:
    """Uses of one dataset's members by all jobs.

    Attributes:
        channels: Spectrum and name of a channel to the number of its uses with independent noise.
        private: DP events, each with its budget, δ and accountant.
        federated: Leakage of federated runs in nats, to an attacker who sees the averages.
        runs: Run to the bounds that it states itself.
        jobs: Kind to the number of jobs with a bound.
        unbounded: Names of jobs without a bound.
        released: Item to the number of jobs.
    """

    channels: Counter[tuple[str, str]] = field(default_factory=Counter)
    private: list[tuple[PrivacyEvent, dict[str, Any]]] = field(default_factory=list)
    federated: float = 0.0
    runs: dict[str, Any] = field(default_factory=dict)
    jobs: Counter[str] = field(default_factory=Counter)
    unbounded: list[str] = field(default_factory=list)
    released: Counter[ReleasedItem] = field(default_factory=Counter)


def composed(root: Path, made: JobList) -> dict[str, dict[str, Any]]:
    """Bound how much all trainings and federated runs on a dataset's private pool together reveal about a record.

    Secure noise is always independent. The uses of channels therefore add precisions, the accountant composes
    the steps of DP, and the nats of both kinds add. (All runs of a replica share seeded noise, which gives no
    protection.) A record is counted as a member of every replica, and every candidate learning rate is a
    training. Jobs without a bound are named. With them there is no bound for all jobs together, and the
    numbers are those of the other jobs.

    Args:
        root: Folder of the configuration's results.
        made: Its jobs, all finished.

    Returns:
        Plain values for each dataset: ``record`` (nats in all), ``channels`` (nats), ``dp`` (as
        :func:`leakbound.accounting.statement.dp_bounds`, None without DP), ``federated`` (nats), ``labels``
        (nats that a label reveals in addition), ``runs`` (run to the bounds that it states), ``jobs`` (kind to
        the number with a bound), ``unbounded`` (names),
        ``released`` (as in the provenance of a run, with the number of jobs). If other datasets come from the
        same records, a member of one may be a member of all. Then there are also ``same_records`` (names of
        these datasets) and ``record_of_all`` (nats in all of them, None if a job there has no bound).
    """
    names = made.table.config.datasets
    statements = {name: _statement(root, made, _uses(root, made, name)) for name in names}
    sources = {name: _sources(root, made, name) for name in names}
    for name, statement in statements.items():
        same = [other for other in names if other != name and sources[other] & sources[name]]
        if same:
            every = [statement, *(statements[other] for other in same)]
            bounded = not any(each["unbounded"] for each in every)
            statement["same_records"] = same
            statement["record_of_all"] = sum(each["record"] for each in every) if bounded else None
    return statements


def _sources(root: Path, made: JobList, dataset: str) -> set[str]:
    """Return hashes of the files of a dataset's records, or its reader if no files are known."""
    path = output(root, "prepare", dataset, "provenance")
    originals = storage.read_json(path).get("originals", {}) if path.is_file() else {}
    return {file["sha256"] for file in originals.values()} or {made.table.readers()[dataset]}


def _uses(root: Path, made: JobList, dataset: str) -> _Uses:
    """Collect the uses of a dataset's members from the finished jobs."""
    uses = _Uses()
    uses.released.update(dataset_releases(made.table.config.privacy_noise == "secure"))
    for job in [*made.of(*_TRAINED), *made.of("attack", "federate")]:
        if job.name.partition("/")[0] != dataset:
            continue
        record = read_record(output(root, job.step, job.name, "provenance"), job.step)
        uses.released.update(ReleasedItem(**item) for item in record.get("released", ()))
        if job.step in _TRAINED:
            _add_training(uses, made, job, record)
        elif job.step == "federate":
            totals = [threat.get("leak_total") for threat in record["leakage"]]
            if len(totals) < len(record["diverged"]) or any(total is None for total in totals):
                uses.unbounded.append(f"federated/{job.name}")
            else:
                uses.federated += sum(totals)
                uses.jobs["federated runs"] += 1
    return uses


def _add_training(uses: _Uses, made: JobList, job: Job, record: dict[str, Any]) -> None:
    """Count a training's networks as uses. Without stated bounds it has none."""
    kind, folder = _TRAINED[job.step]
    run = made.table.runs[job.name]
    if job.step == "train":
        uses.runs[job.name] = record["leakage"]
    if not record["leakage"]:
        uses.unbounded.append(f"{folder}{job.name}")
        return
    uses.jobs[kind] += 1
    names = made.table.channel_names(run)
    for event in (PrivacyEvent(**event) for event in record["events"]):
        if event.bound == "nats" and names is not None:
            uses.channels[names] += math.ceil(event.fresh_uses)
        else:
            uses.private.append((event, made.table.defense_of(run).budget))


def _statement(root: Path, made: JobList, uses: _Uses) -> dict[str, Any]:
    """Return the composed bounds as plain values."""
    channels = _channel_nats(root, made, uses.channels) if uses.channels else 0.0
    dp = None
    if uses.private:
        delta = min(budget["delta"] for _, budget in uses.private)
        precise = all(budget["accountant"] == "prv" for _, budget in uses.private)
        dp = dp_bounds([event for event, _ in uses.private], delta, "prv" if precise else "rdp")
    return {
        "record": channels + (dp["record"] if dp else 0.0) + uses.federated,
        "channels": channels,
        "dp": dp,
        "federated": uses.federated,
        "labels": max((bound["labels"] for bound in uses.runs.values() if bound), default=0.0),
        "runs": uses.runs,
        "jobs": dict(uses.jobs),
        "unbounded": uses.unbounded,
        "privacy_noise": made.table.config.privacy_noise,
        "released": [{**item.to_dict(), "jobs": jobs} for item, jobs in sorted(uses.released.items())],
    }


def _channel_nats(root: Path, made: JobList, counts: Counter[tuple[str, str]]) -> float:
    """Bound the nats of all uses of channels, whose spectra are of one covariance."""
    source = made.job("spectrum", next(iter(counts))[0]).inputs["moments"]
    file = root / Path(str(source)).relative_to(made.table.config.root)
    moments = Moments.from_arrays(storage.read_arrays(file))
    channels, mechanisms = zip(*stored_channels(root, counts), strict=True)
    return schedule_nats(channels, mechanisms, list(counts.values()), moments)


def stored_channels(
    root: Path, names: Iterable[tuple[str, str]]
) -> Iterator[tuple[GaussianChannel, Mechanism]]:
    """Read channels of a configuration's results, each also as a mechanism.

    Args:
        root: Folder of the results.
        names: Spectrum and name of each. Channels of one spectrum share its axes.
    """

    @cache
    def read(spectrum: str) -> Spectrum:
        path = output(root, "spectrum", spectrum, "out")
        return Spectrum.from_arrays(*storage.read_arrays_and_metadata(path))

    for spectrum, name in names:
        stored = storage.read_arrays_and_metadata(output(root, "calibrate", name, "out"))
        channel = GaussianChannel.from_arrays(*stored, read(spectrum).basis)
        yield channel, Mechanism(channel.shape, signal_to_noise(channel, read(spectrum)))
