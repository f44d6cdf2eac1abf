"""Publication of one replica: its weights, channel, event and stated bounds, and nothing else."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from leakbound import __version__, storage
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.statement import ReleasedItem, refusals, stated_bounds
from leakbound.config.defenses import Defense
from leakbound.jobs.job import Job, JobList
from leakbound.jobs.paths import output
from leakbound.jobs.results.dataset_leakage import stored_channels
from leakbound.storage.tables import read_record

_README = """\
# One trained replica

`weights.safetensors` contains the weights of one replica of {run}. `event.json` states how its training used the
private records{channel}. `statement.json` has the numbers of this page.

* Bound on what these weights reveal about one record, to an attacker who knows all others: **{one}**.{labels}
* {count} replicas were trained on records of one pool, and a record may be in all of them. Each one that is published
  adds to this: {all} for all of them.
  So do other runs on the same records. These files cannot show whether others have been published.
* The bound holds if this replica was not chosen by its results, and if only these files are released.

leakbound {version}: `leakbound.accounting` recomputes the numbers from the event{ratios}.
"""


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

    files = {name: output(root, "train", slug, name) for name in ("weights", "provenance")}
    record = read_record(files["provenance"], "train")
    weights = storage.read_arrays(files["weights"])
    refused = [
        *_mismatches(record, made.job("train", slug), storage.check(files["weights"]), weights, replica)
    ]
    if not refused:
        noisy = made.table.channel_names(made.table.runs[slug]) is not None
        refused = refusals([ReleasedItem(**item) for item in record["released"]], channel=noisy)
        if record["diverged"][replica]:
            refused.append(f"replica {replica}: it diverged, so its weights are no result")
    if refused:
        raise NotCoveredError("\n".join([f"replica {replica} of {slug} may not be published:", *refused]))
    channel, ratios = _channel(root, made, slug, record)
    statement, event = _statement(record, made.table.defense_of(made.table.runs[slug]), ratios, replica)
    networks = [rate for rate in record["rates"] if rate["kept"]]
    place = next(row for row, rate in enumerate(networks) if rate["replica"] == replica and rate["chosen"])
    kept = {name: np.ascontiguousarray(array[place]) for name, array in sorted(weights.items())}
    texts = {"event.json": _json(event.to_dict()), "statement.json": _json({"run": slug, **statement})}
    return {
        "weights.safetensors": save(kept),
        **({} if channel is None else {"channel.safetensors": save(channel)}),
        **{name: text.encode() for name, text in texts.items()},
        "README.md": _readme(slug, statement, channel is not None).encode(),
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


def _channel(root: Path, made: JobList, slug: str, record: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return the arrays of a run's channel that may be published, and its variance ratios of one use.

    Both are None without a channel.

    Raises:
        NotCoveredError: If the weights were trained with another channel.
    """
    names = made.table.channel_names(made.table.runs[slug])
    if names is None:
        return None, None
    path = output(root, "calibrate", names[1], "out")
    if record["inputs"].get("channel") != storage.check(path):
        raise NotCoveredError(f"{path}: the weights were trained with another channel; train again")
    ((channel, mechanism),) = stored_channels(root, [names])
    gain = {} if channel.gain is None else {"gain": channel.gain}
    return {"variances": channel.variances, "ratios": mechanism.ratios, **gain}, mechanism.ratios


def _statement(
    record: Mapping[str, Any], defense: Defense, ratios: Any, replica: int
) -> tuple[dict[str, Any], PrivacyEvent]:
    """Return the bounds of 1, 2, … replicas, recomputed from the published event, and this event.

    Raises:
        NotCoveredError: If the provenance states other bounds.
    """
    events = [PrivacyEvent(**event) for event in record["events"]]
    stated = record["leakage"]
    options = {**defense.budget, "labels": stated["replica"].get("labels", stated["labels"])}
    if stated_bounds(events, ratios, **options) != stated:
        raise NotCoveredError(
            "provenance: the bounds of its events and channel differ from those that it states; train again"
        )
    growing = [
        stated_bounds([events[replica]] * count, ratios, **options) for count in range(1, len(events) + 1)
    ]
    responded = any(release["item"] == "labels" and release["covered"] for release in record["released"])
    return {
        "leakbound": __version__,
        "labels": record["leakage"]["labels"],
        **({"labels_responded": True} if responded else {}),
        "replica": record["leakage"]["replica"],
        "replicas": [bounds["replicas"] for bounds in growing if bounds],
    }, events[replica]


def _readme(slug: str, statement: Mapping[str, Any], has_channel: bool) -> str:
    """Write the page for whoever receives the files."""
    labels = statement["labels"]
    kind = "are randomized responses" if "labels_responded" in statement else "get no noise"
    return _README.format(
        run=slug,
        channel=", and `channel.safetensors` the noise that it added to them" if has_channel else "",
        one=statement["replica"]["stated"],
        labels=f" Labels {kind} and may reveal {labels:.3g} nats more." if labels else "",
        count=len(statement["replicas"]),
        all=statement["replicas"][-1]["stated"],
        version=__version__,
        ratios=" and the channel's `ratios` of signal to noise" if has_channel else "",
    )


def _json(value: Any) -> str:
    """Write plain values as JSON."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
