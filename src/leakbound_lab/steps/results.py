"""Finished results of a configuration: origin and cost, composed bounds, and publication of one replica.

Composed bounds are of all uses of the same members, one statement for each dataset. A publication has the
weights of a replica, its channel, event and stated bounds, and nothing else.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from leakbound import __version__, storage
from leakbound.accounting.leakage import Mechanism, PrivacyEvent
from leakbound.accounting.releases import ReleasedItem, dataset_releases, refusals
from leakbound.accounting.risk import bound_text
from leakbound.accounting.runs import run_statements, stated_bounds
from leakbound.accounting.statement import Statement, Unit, state
from leakbound.channels.channel import GaussianChannel, signal_to_noise
from leakbound.channels.composition import schedule_nats
from leakbound.channels.covariance import Moments
from leakbound.commands.files import read_spectrum
from leakbound.storage import limits
from leakbound.storage.provenance import settings_hash, versions
from leakbound.storage.tables import read_record
from leakbound_lab.config.defenses import Defense
from leakbound_lab.jobs.job import Job, JobList, jobs_by_rule
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.runs import Run
from leakbound_lab.steps.inputs import read_dataset

_EARLIER = "an earlier version of leakbound wrote its provenance, which states no bound in this one's form; train again"
_TRAINED = {"train": ("trainings", ""), "references": ("trainings of reference networks", "references/")}
_README = """\
# One trained replica

`weights.safetensors` contains the weights of one replica of {run}. `event.json` states how its training used the
private records{channel}. `statement.json` has the numbers of this page.

* The network, {inputs[model]}, takes float32 records of shape {inputs[shape]}: (value − mean) · factor, clipped to
  −1 to 1, of {inputs[values]}. Its largest output is the class: {inputs[classes]}.
  The metadata `inputs` of the weights hold all of this.
* Bound, against an attacker who knows all other records: **{one}** {each}{labels}
* What so many nats prevent, labels included: `leakbound risk --nats {nats} --records {members}`.
* {count} trained on records of one pool, and a record may be in all of them. Each one that is published
  adds to this. {all}
  So do other runs on the same records. These files cannot show whether others have been published.
* The bound holds if this replica was not chosen by its results, and if only these files are released.

leakbound {version}: `leakbound.accounting` recomputes the numbers from the event{ratios}.
"""
_PIXELS = {
    "values": "pixels from 0 to 255, resized by antialiased bilinear interpolation; mean 127.5, factor 1/127.5",
    "mean": [127.5],
    "factor": [1 / 127.5],
}
_AVERAGE = (
    "The average is over records with the covariance of the public ones that the noise was calibrated to; "
    "about a record unlike them the weights may reveal more."
)


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
        unit: Whose uses are counted.
        group: Most rows of one unit.
    """

    def __init__(self) -> None:
        self.channels: Counter[tuple[str, str]] = Counter()
        self.private: list[tuple[PrivacyEvent, dict[str, Any]]] = []
        self.federated = 0.0
        self.runs: dict[str, Any] = {}
        self.jobs: Counter[str] = Counter()
        self.unbounded: list[str] = []
        self.released: Counter[ReleasedItem] = Counter()
        self.unit: Unit = "record"
        self.group = 1


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
        a :class:`leakbound.accounting.statement.Statement` has it, None without DP), ``federated`` (nats),
        ``labels`` (nats that a label reveals in addition), ``statement`` (of all these together), ``runs``
        (run to the statements that it makes), ``jobs`` (kind to
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
        if "statement" not in record:
            raise ValueError(f"train/{job.name}: {_EARLIER}")
        uses.runs[job.name] = {"count": len(record["events"]), **record["statement"]}
    if not record["leakage"]:
        uses.unbounded.append(f"{folder}{job.name}")
        return
    uses.jobs[kind] += 1
    channel = made.table.channel_of(run)
    for event in (PrivacyEvent(**event) for event in record["events"]):
        uses.unit = event.unit
        uses.group = max(uses.group, event.rows)
        if event.bound == "nats" and channel is not None:
            uses.channels[channel.spectrum, channel.name] += math.ceil(event.fresh_uses)
        else:
            uses.private.append((event, made.table.defense_of(run).budget))


def _statement(root: Path, made: JobList, uses: _Uses) -> dict[str, Any]:
    """Return the composed bounds as plain values."""
    secure = made.table.config.privacy_noise == "secure"
    channels = 0.0
    if uses.channels:  # whose spectra are of one covariance
        source = made.job("spectrum", next(iter(uses.channels))[0]).inputs["moments"]
        file = root / Path(str(source)).relative_to(made.table.config.root)
        moments = Moments.from_arrays(storage.read_arrays(file))
        stored, mechanisms = zip(*stored_channels(root, uses.channels), strict=True)
        channels = schedule_nats(stored, mechanisms, list(uses.channels.values()), moments)
    dp = None
    if uses.private:
        delta = min(budget["delta"] for _, budget in uses.private)
        precise = all(budget["accountant"] == "prv" for _, budget in uses.private)
        events = [event for event, _ in uses.private]
        dp = state(
            "all trainings with DP",
            events=events,
            delta=delta,
            accountant="prv" if precise else "rdp",
            labels="covered",
            secure=secure,
        )
    labels = max((run["replica"]["labels"] for run in uses.runs.values()), default=0.0)
    nats = channels + (dp.values if dp else 0.0) + uses.federated
    together = state(
        "all jobs with a bound together",
        added=nats,
        labels=labels or "covered",
        secure=secure,
        unit=uses.unit,
        group=uses.group,
        why_not=_why_not(uses),
    )
    return {
        "record": nats,
        "channels": channels,
        "dp": dp and dp.numbers(),
        "federated": uses.federated,
        "labels": labels,
        "statement": together.numbers(),
        "runs": uses.runs,
        "jobs": dict(uses.jobs),
        "unbounded": uses.unbounded,
        "privacy_noise": made.table.config.privacy_noise,
        "released": [{**item.to_dict(), "jobs": jobs} for item, jobs in sorted(uses.released.items())],
    }


def _why_not(uses: _Uses) -> str:
    """Say why all jobs together have no bound. Empty if they have one."""
    return f"{len(uses.unbounded)} jobs have no bound" if uses.unbounded else ""


def stored_channels(
    root: Path, names: Iterable[tuple[str, str]]
) -> Iterator[tuple[GaussianChannel, Mechanism]]:
    """Read channels of a configuration's results, each also as a mechanism.

    Args:
        root: Folder of the results.
        names: Spectrum and name of each. Channels of one spectrum share its axes.
    """
    read = cache(read_spectrum)
    for spectrum, name in names:
        source = read(output(root, "spectrum", spectrum, "out"))
        stored = storage.read_arrays_and_metadata(output(root, "calibrate", name, "out"))
        channel = GaussianChannel.from_arrays(*stored, source.basis)
        yield channel, Mechanism(channel.shape, signal_to_noise(channel, source))


class Usage(NamedTuple):
    """Time and memory of a job. Unknown values are 0.

    Attributes:
        seconds: Wall time in seconds.
        max_rss_mib: Most memory at once in MiB.
        cpu_seconds: CPU time in seconds, up to the last sample.
    """

    seconds: float
    max_rss_mib: float
    cpu_seconds: float


def read_usage(path: Path) -> Usage:
    """Read the time and memory of a job from the benchmark file that Snakemake wrote.

    Snakemake samples a job every half second, and every 30 s after the first 15 s. It writes ``NA`` or ``-``
    for a job that ends before the first sample.

    Raises:
        DamagedFileError: If the file is no such table.
    """
    text = storage.read_bytes(path, sealed=False, most=limits.TEXT).decode(errors="replace")
    try:
        header, row = (line.split("\t") for line in text.splitlines())
        cells = dict(zip(header, row, strict=True))
        needed = (cells[column] for column in ("s", "max_rss", "cpu_time"))
        return Usage(*(0.0 if cell in ("NA", "-") else float(cell) for cell in needed))
    except (KeyError, ValueError) as error:
        raise storage.DamagedFileError(path, f"no table of time and memory: {error!r}") from error


def summary(root: Path, made: JobList) -> dict[str, Any]:
    """Collect the origin of a configuration's results, and the time of each step.

    Args:
        root: Folder of the configuration's results.
        made: Its jobs, all finished.

    Returns:
        Plain values, as the report shows them.
    """
    config = made.table.config
    recorded = [job for job in made if "provenance" in job.outputs]
    computed = [job for job in recorded if job.step not in ("prepare", "calibrate")]
    jobs = [storage.read_json(output(root, job.step, job.name, "provenance")) for job in computed]
    differing = [*of_other_settings(computed, jobs)]
    written = ((job.name, output(root, "prepare", job.name, "provenance")) for job in made.of("prepare"))
    # Large files may have been left elsewhere.
    prepared = {name: path for name, path in written if path.is_file()}
    return {
        "preset": config.preset,
        "config_hash": settings_hash(config.model_dump(mode="json")),
        "jobs": len(jobs),
        "other_settings": len(differing),
        "commits": dict(Counter(str(job["commit"]) for job in jobs)),
        "dirty": any(job["dirty"] for job in jobs),
        "devices": dict(Counter(job["device"] for job in jobs)),
        "versions": versions(),
        "diverged_replicas": sum(sum(job.get("diverged", [])) for job in jobs),
        "data": {name: storage.read_json(path)["content"] for name, path in prepared.items()},
        "leakage": composed(root, made),
        "steps": _costs(root, made),
    }


def of_other_settings(jobs: Iterable[Job], records: Iterable[Mapping[str, Any]]) -> Iterator[Job]:
    """Yield the jobs whose results were made by other settings than the configuration's.

    Snakemake makes such results again, unless ``--rerun-triggers mtime`` has it look at the times of files alone.

    Args:
        jobs: Jobs of the configuration.
        records: Provenance of the result of each. One without settings, as earlier versions wrote it, is left out.
    """
    for job, record in zip(jobs, records, strict=True):
        if "settings" in record and record["settings"] != json.loads(job.settings_text()):
            yield job


def _costs(root: Path, made: JobList) -> dict[str, dict[str, int | float]]:
    """Return the jobs, wall seconds, CPU seconds and largest memory (MiB) of each rule, as Snakemake measured them."""
    costs = {}
    every = jobs_by_rule(made)
    for step in dict.fromkeys(rule for rule, _ in every):
        files = [root / f"benchmarks/{'/'.join(filter(None, key))}.tsv" for key in every if key[0] == step]
        if usages := [read_usage(path) for path in files if path.is_file()]:
            costs[step] = {
                "jobs": len(usages),
                "seconds": round(sum(used.seconds for used in usages), 1),
                "cpu_seconds": round(sum(used.cpu_seconds for used in usages), 1),
                "max_rss_mib": round(max(used.max_rss_mib for used in usages), 1),
            }
    return costs


class NotCoveredError(ValueError):
    """Raised for a run that may not be published. The message has every reason."""


def publication(root: Path, made: JobList, slug: str, replica: int) -> dict[str, bytes]:
    """Collect the files that may be published of one replica.

    Args:
        root: Folder of the configuration's results.
        made: Its jobs.
        slug: Name of the run.
        replica: Number of the replica, counted from 0.

    Returns:
        Name of each file to its content.

    Raises:
        NotCoveredError: If the stated bound does not cover something that the files reveal, or the files do
            not belong together.
        DamagedFileError: If a file does not match its seal.
    """
    from safetensors.numpy import save

    run = made.table.runs[slug]
    files = {name: output(root, "train", slug, name) for name in ("weights", "provenance")}
    record = read_record(files["provenance"], "train")
    weights = storage.read_arrays(files["weights"])
    digest = storage.check(files["weights"])
    refused = [*_mismatches(record, made.job("train", slug), digest, weights, replica)]
    if not refused:
        noisy = made.table.channel_of(run) is not None
        refused = [] if "statement" in record else [f"provenance: {_EARLIER}"]
        refused += refusals([ReleasedItem(**item) for item in record["released"]], channel=noisy)
        if record["diverged"][replica]:
            refused.append(f"replica {replica}: it diverged, so its weights are no result")
    if refused:
        raise NotCoveredError("\n".join([f"replica {replica} of {slug} may not be published:", *refused]))
    channel, ratios = _published_channel(root, made, slug, record)
    statement, event = _published_statement(record, made.table.defense_of(run), ratios, replica)
    networks = [rate for rate in record["rates"] if rate["kept"]]
    place = next(row for row, rate in enumerate(networks) if rate["replica"] == replica and rate["chosen"])
    kept = {name: np.ascontiguousarray(array[place]) for name, array in sorted(weights.items())}
    inputs = _published_inputs(root, run, record)
    texts = {"event.json": _json(event.to_dict()), "statement.json": _json({"run": slug, **statement})}
    return {
        "weights.safetensors": save(kept, {"inputs": json.dumps(inputs, sort_keys=True)}),
        **({} if channel is None else {"channel.safetensors": save(channel)}),
        **{name: text.encode() for name, text in texts.items()},
        "README.md": _readme(slug, statement, event, inputs).encode(),
    }


def _mismatches(
    record: Mapping[str, Any], job: Job, digest: str, weights: Mapping[str, np.ndarray], replica: int
) -> Iterator[str]:
    """Yield the facts that show that files are not of one job, or not of this configuration."""
    kept = [network for network in record.get("rates", ()) if network["kept"]]
    count = len({network["replica"] for network in kept})
    if not {"released", "outputs", "rates"} <= record.keys():
        yield "provenance: it does not say which releases of the run are covered; train again"
    elif record["outputs"]["weights"] != digest:
        yield "weights: they are not those of the provenance; train again"
    if record.get("settings") != json.loads(job.settings_text()):
        yield "provenance: its settings differ from the configuration; name the configuration that was run"
    if any(len(array) != len(kept) for array in weights.values()):
        yield f"weights: they are not of {len(kept)} networks, as the provenance says; train again"
    if not 0 <= replica < count:
        yield f"replica = {replica}: there are {count} replicas, counted from 0"


def _published_channel(root: Path, made: JobList, slug: str, record: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the arrays of a run's channel that may be published, and its variance ratios of one use.

    Both are None without a channel.

    Raises:
        NotCoveredError: If the weights were trained with another channel.
    """
    used = made.table.channel_of(made.table.runs[slug])
    if used is None:
        return None, None
    path = output(root, "calibrate", used.name, "out")
    if record["inputs"].get("channel") != storage.check(path):
        raise NotCoveredError(f"{path}: the weights were trained with another channel; train again")
    ((channel, mechanism),) = stored_channels(root, [(used.spectrum, used.name)])
    gain = {} if channel.gain is None else {"gain": channel.gain}
    return {"variances": channel.variances, "ratios": mechanism.ratios, **gain}, mechanism.ratios


def _published_inputs(root: Path, run: Run, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network, the shape and scale of its inputs, and the classes that its outputs stand for.

    Raises:
        NotCoveredError: If the weights were trained on other records.
    """
    path = output(root, "prepare", run.dataset, "out")
    if record["inputs"].get("dataset") != storage.check(path):
        raise NotCoveredError(f"{path}: the weights were trained on other records; train again")
    dataset = read_dataset(path)
    facts = {"shape": dataset.aux.images.shape[1:], "classes": dataset.classes, "values": "columns"}
    return {"model": run.model, **facts, **(dataset.scale or _PIXELS)}


def _published_statement(
    record: Mapping[str, Any], defense: Defense, ratios: Any, replica: int
) -> tuple[dict[str, Any], PrivacyEvent]:
    """Return the bounds of 1, 2, … replicas, recomputed from the published event, and this event.

    Raises:
        NotCoveredError: If the provenance states other bounds.
    """
    events = [PrivacyEvent(**event) for event in record["events"]]
    stated = record["leakage"]
    options = {**defense.budget, "labels": stated["replica"].get("labels", stated["labels"])}
    statement = Statement.from_numbers(record["statement"]["replica"])
    facts = {**options, "secure": statement.secure, "uncovered": statement.uncovered}
    again = run_statements(events, ratios, **facts)
    if (
        stated_bounds(events, ratios, **options) != stated
        or again is None
        or {of: each.numbers() for of, each in again.items()} != record["statement"]
    ):
        raise NotCoveredError(
            "provenance: the bounds of its events and channel differ from those that it states; train again"
        )
    copies = [[events[replica]] * count for count in range(1, len(events) + 1)]
    growing = [stated_bounds(several, ratios, **options) for several in copies]
    sentences = [run_statements(several, ratios, **facts) for several in copies]
    responded = any(release["item"] == "labels" and release["covered"] for release in record["released"])
    return {
        "leakbound": __version__,
        "labels": record["leakage"]["labels"],
        **({"labels_responded": True} if responded else {}),
        "replica": record["leakage"]["replica"],
        "replicas": [bounds["replicas"] for bounds in growing if bounds],
        "statement": again["replica"].numbers(),
        "statements": [each["replicas"].numbers() for each in sentences if each],
    }, events[replica]


def _readme(slug: str, statement: Mapping[str, Any], event: PrivacyEvent, inputs: Mapping[str, Any]) -> str:
    """Write the page for whoever receives the files."""
    labels = statement["labels"]
    has_channel = event.mechanism == "channel"
    count = len(statement["replicas"])
    kind = "are randomized responses" if "labels_responded" in statement else "get no noise"
    return _README.format(
        run=slug,
        inputs=inputs,
        channel=", and `channel.safetensors` the noise that it added to them" if has_channel else "",
        one=statement["statement"]["sentence"],
        each=_AVERAGE if has_channel else "It holds whatever the record is.",
        nats=bound_text(statement["statement"]["nats"], digits=4),
        members=event.population,
        labels=f" Labels {kind}." if labels else "",
        count="1 replica was" if count == 1 else f"{count} replicas were",
        all=statement["statements"][-1]["sentence"],
        version=__version__,
        ratios=" and the channel's `ratios` of signal to noise" if has_channel else "",
    )


def _json(value: Any) -> str:
    """Write plain values as JSON."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
