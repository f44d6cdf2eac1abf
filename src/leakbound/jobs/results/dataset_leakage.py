"""Composed bounds of all uses of the same members by a configuration: one statement for each dataset."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.leakage import looks
from leakbound.accounting.statement import dataset_releases, dp_bounds
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.composition import composed_capacity
from leakbound.channels.covariance import Moments
from leakbound.jobs.job import Job, JobList
from leakbound.jobs.paths import output
from leakbound.jobs.runs import Run
from leakbound.storage.tables import read_record

_TRAINED = {"train": ("trainings", ""), "references": ("trainings of reference networks", "references/")}


@dataclass
class _Uses:
    """Uses of one dataset's members by all jobs.

    Attributes:
        channels: Spectrum and name of a channel to the number of its uses.
        private: DP events, each with δ and accountant.
        federated: Leakage of federated runs in nats, to an attacker who sees the averages.
        runs: Run to the bounds that it states itself.
        jobs: Kind to the number of jobs with a bound.
        unbounded: Names of jobs without a bound.
        released: Item with its reason to the number of jobs.
    """

    channels: Counter[tuple[str, str]] = field(default_factory=Counter)
    private: list[tuple[PrivacyEvent, float, str]] = field(default_factory=list)
    federated: float = 0.0
    runs: dict[str, Any] = field(default_factory=dict)
    jobs: Counter[str] = field(default_factory=Counter)
    unbounded: list[str] = field(default_factory=list)
    released: Counter[tuple[str, bool, str]] = field(default_factory=Counter)


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
        :func:`leakbound.accounting.statement.dp_bounds`, None without DP), ``federated`` (nats), ``runs``
        (run to the bounds that it states), ``jobs`` (kind to the number with a bound), ``unbounded`` (names),
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
    table = made.table
    uses = _Uses()
    releases = dataset_releases(table.config.privacy_noise == "secure")
    uses.released.update((release.item, release.covered, release.why) for release in releases)
    for job in made.of("train", "references"):
        run = table.runs[job.name]
        if run.dataset != dataset:
            continue
        record = _record(root, job, uses)
        if job.step == "train":
            uses.runs[job.name] = record["leakage"]
        events = record["events"] if record["leakage"] else []
        _account(uses, made, run, job, [PrivacyEvent(**event) for event in events])
    for job in made.of("attack"):
        if table.runs[job.name.rpartition("/")[0]].dataset == dataset:
            _record(root, job, uses)
    for job in made.of("federate"):
        if table.all_federated()[job.name].dataset == dataset:
            record = _record(root, job, uses)
            totals = [threat.get("leak_total") for threat in record["leakage"]]
            if len(totals) < len(record["diverged"]) or any(total is None for total in totals):
                uses.unbounded.append(f"federated/{job.name}")
            else:
                uses.federated += sum(totals)
                uses.jobs["federated runs"] += 1
    return uses


def _record(root: Path, job: Job, uses: _Uses) -> dict[str, Any]:
    """Read the provenance of a job, and count its releases."""
    record = read_record(output(root, job.step, job.name, "provenance"), job.step)
    uses.released.update(
        (release["item"], release["covered"], release["why"]) for release in record.get("released", ())
    )
    return record


def _account(uses: _Uses, made: JobList, run: Run, job: Job, events: list[PrivacyEvent]) -> None:
    """Count trainings as uses. Without events they have no bound."""
    kind, folder = _TRAINED[job.step]
    if not events:
        uses.unbounded.append(f"{folder}{job.name}")
        return
    uses.jobs[kind] += 1
    names = made.table.channel_names(run)
    budget = made.table.defense_of(run).budget
    for event in events:
        if event.bound == "nats" and names is not None:
            uses.channels[names] += looks(event)
        else:
            uses.private.append((event, budget["delta"], budget["accountant"]))


def _statement(root: Path, made: JobList, uses: _Uses) -> dict[str, Any]:
    """Return the composed bounds as plain values."""
    channels = 0.0
    dp = None
    if uses.channels:
        spectrum = next(spectrum for spectrum, _ in uses.channels)
        source = Path(str(made.job("spectrum", spectrum).inputs["moments"])).relative_to(
            made.table.config.root
        )
        moments = Moments.from_arrays(storage.read_arrays(root / source))
        channels = composed_capacity(list(_channels(root, uses.channels)), moments)
    if uses.private:
        delta = min(delta for _, delta, _ in uses.private)
        precise = all(accountant == "prv" for *_, accountant in uses.private)
        dp = dp_bounds([event for event, *_ in uses.private], delta, "prv" if precise else "rdp")
    return {
        "record": channels + (dp["record"] if dp else 0.0) + uses.federated,
        "channels": channels,
        "dp": dp,
        "federated": uses.federated,
        "runs": uses.runs,
        "jobs": dict(uses.jobs),
        "unbounded": uses.unbounded,
        "privacy_noise": made.table.config.privacy_noise,
        "released": [
            {"item": item, "covered": covered, "why": why, "jobs": jobs}
            for (item, covered, why), jobs in sorted(uses.released.items())
        ],
    }


def _channels(root: Path, counts: Mapping[tuple[str, str], int]) -> Iterator[tuple[GaussianChannel, int]]:
    """Yield the channels with the number of uses of each. Channels of one spectrum share its axes."""

    @cache
    def basis(spectrum: str) -> Any:
        return storage.read_arrays(output(root, "spectrum", spectrum, "out")).get("basis")

    for (spectrum, name), count in counts.items():
        arrays, metadata = storage.read_arrays_and_metadata(output(root, "calibrate", name, "out"))
        axes = basis(spectrum) if metadata["axes"] != "pixels" else None
        yield GaussianChannel.from_arrays(arrays, metadata, axes), count
