"""Description of a configuration for people: data, studies, bounds and families of figures."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from leakbound.accounting.statement import upper_bound
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.data import size_of
from leakbound_lab.config.whole import Config
from leakbound_lab.figures import style


def category(figure: FigureConfig) -> str:
    """Return the category of a figure: its study, another table, or closed forms."""
    if figure.study is not None:
        return f"Study: {figure.study.replace('_', ' ')}"
    return "Closed forms and pictures" if figure.table is None else f"Table: {figure.table.replace('_', ' ')}"


def families(figures: Sequence[FigureConfig]) -> list[list[str]]:
    """Group keys ``paper/id`` of figures with variants of the same paper, e.g. ``fig10`` with ``fig10_gain``."""
    listed = [f"{figure.paper}/{figure.id}" for figure in figures]
    grouped: dict[str, list[str]] = {}
    for key in listed:
        head = next(head for head in accumulate(key.split("_"), "{}_{}".format) if head in listed)
        grouped.setdefault(head, []).append(key)
    return [sorted(keys, key=lambda key: key != head) for head, keys in grouped.items()]


def swept_levels(defenses: Mapping[str, Sequence[float]]) -> str:
    """List defenses with their levels, e.g. *undefended*, then *natural 50, 100*."""
    return "; ".join(
        f"{style.style_of(name).label} {', '.join(style.level_label(name, level) for level in swept)}".strip()
        for name, swept in defenses.items()
    )


def datasets(config: Config, provenance: Mapping[str, Any]) -> list[list[str]]:
    """List the datasets of a configuration: name, draws of a replica, sizes of other splits, hash of images."""
    hashes = provenance.get("data", {})
    lines = []
    for name, settings in config.datasets.items():
        size = size_of(name, settings)
        drawn = f"{size.members:,} members, as many non-members, {size.validation:,} for validation"
        drawn += f", of {size.pool:,}" if size.known or settings.pool else ""
        if (section := config.federated) is not None and name in section.models:
            drawn += (
                f"; in federated averaging up to {section.most_clients()} clients "
                f"with {section.records_each(size.members):,} each"
            )
        others = f"{size.test:,} for accuracy, {size.aux:,} for the attacker"
        lines.append([style.written(name), drawn, others, str(hashes.get(name, ""))[:16] or "–"])
    return lines


def bounds_table(provenance: Mapping[str, Any]) -> list[list[str]]:
    """List how much all trainings on each dataset leak about one member: counts of bounds, nats, ε."""
    return [
        [
            style.written(name),
            ", ".join(f"{count} {kind}" for kind, count in leakage["jobs"].items()) or "none",
            upper_bound(leakage["channels"]),
            leakage["dp"]["short"] if leakage["dp"] else "–",
            upper_bound(leakage["federated"]) if leakage["federated"] else "–",
            upper_bound(leakage["record"]),
            upper_bound(leakage["labels"]) if "labels" in leakage else "–",
            _of_all(leakage),
        ]
        for name, leakage in provenance.get("leakage", {}).items()
    ]


def _of_all(leakage: Mapping[str, Any]) -> str:
    """Write the nats that all jobs together leak about a member, also through other datasets of the same records."""
    if leakage["unbounded"]:
        return f"no bound: {len(leakage['unbounded'])} have none"
    if "same_records" not in leakage:
        return upper_bound(leakage["record"])
    others = ", ".join(map(style.written, leakage["same_records"]))
    nats = "no bound" if leakage["record_of_all"] is None else upper_bound(leakage["record_of_all"])
    return f"{nats} with {others}, which has the same records"


def bounds_of_runs(provenance: Mapping[str, Any]) -> list[list[str]]:
    """List how much the weights of each run leak about one member: those of one replica, and those of all."""
    runs = [pair for leakage in provenance.get("leakage", {}).values() for pair in leakage["runs"].items()]
    return [
        [run, str(bound["count"]), bound["replica"]["short"], bound["replicas"]["short"]]
        for run, bound in runs
    ]


def releases(provenance: Mapping[str, Any]) -> list[list[str]]:
    """List the releases of jobs, whether a bound covers them and why, and the number of jobs."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for leakage in provenance.get("leakage", {}).values():
        for release in leakage["released"]:
            counts[release["item"], release["covered"], release["why"]] += release["jobs"]
    return [
        [item, "covered" if covered else "not covered", why, f"{jobs:,}"]
        for (item, covered, why), jobs in sorted(counts.items())
    ]


@dataclass(frozen=True)
class Swept:
    """What the defenses of a configuration's studies are, so that a page explains nothing that it lacks.

    Attributes:
        channels: Whether one is a channel, whose level is in nats.
        dp: Whether one is a variant of DP-SGD, whose level is a noise multiplier.
        noise: Whether one draws noise, or another section of the configuration may.
    """

    channels: bool
    dp: bool
    noise: bool


def swept(config: Config) -> Swept:
    """Look at the defenses that the studies of a configuration sweep."""
    defenses = [config.defense(name) for study in config.studies.values() for name in study.defenses]
    mechanisms = {defense.mechanism for defense in defenses}
    further = (config.federated, config.consensus, config.efficiency, config.illustrations or None)
    return Swept(
        channels=not mechanisms.isdisjoint(("channel", "channel_dpsgd")),
        dp=not mechanisms.isdisjoint(("dpsgd", "dppsac", "dpmf", "channel_dpsgd")),
        noise=any(defense.draws_noise for defense in defenses) or any(part is not None for part in further),
    )


def studies(config: Config) -> list[list[str]]:
    """List the studies of a configuration: datasets, networks, defenses, ..., number of replicas and runs."""
    lines = []
    for name, study in config.studies.items():
        defended = sum(max(1, len(swept)) for swept in study.defenses.values())
        sides = (study.datasets, study.models, study.rounds, study.batch_sizes)
        lines.append(
            [
                name.replace("_", " "),
                ", ".join(style.written(dataset) for dataset in study.datasets),
                ", ".join(style.written(model) for model in study.models),
                swept_levels(study.defenses),
                ", ".join(f"{rounds:,}" for rounds in study.rounds),
                ", ".join(str(size) for size in study.batch_sizes),
                ", ".join(attack.replace("_", " ") for attack in study.attacks) or "–",
                str(study.replicas or config.replicas),
                f"{defended * math.prod(len(side) for side in sides):,}",
            ]
        )
    return lines
