"""A configuration in words for people: its data, studies, papers and families of figures."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from leakbound.config.catalogue import FigureConfig
from leakbound.config.data import size_of
from leakbound.config.whole import Config
from leakbound.figures import style

_STATED = ("replica", "replicas")
_NO_BOUND = ("–", "no bound", "no bound")


def category(figure: FigureConfig) -> str:
    """Source of a figure: its study, another table, or nothing trained."""
    if figure.study is not None:
        return f"Study: {figure.study.replace('_', ' ')}"
    return "Closed forms and pictures" if figure.table is None else f"Table: {figure.table.replace('_', ' ')}"


def families(figures: Sequence[FigureConfig]) -> list[list[str]]:
    """Keys ``paper/id`` of figures, each with its twins of the same paper behind it: ``fig10`` with ``fig10_gain``."""
    known = [f"{figure.paper}/{figure.id}" for figure in figures]
    found: dict[str, list[str]] = {}
    for key in known:
        head = next(head for head in accumulate(key.split("_"), "{}_{}".format) if head in known)
        found.setdefault(head, []).append(key)
    return [sorted(keys, key=lambda key: key != head) for head, keys in found.items()]


def levels(defenses: Mapping[str, Sequence[float]]) -> str:
    """Defenses with their levels, e.g. ``undefended; natural 50, 100``."""
    return "; ".join(
        f"{style.look(name).label} {', '.join(style.level_label(name, level) for level in swept)}".strip()
        for name, swept in defenses.items()
    )


def datasets(config: Config, provenance: Mapping[str, Any]) -> list[list[str]]:
    """Data of a configuration: names, what a replica draws, sizes of the other splits, hashes of the images."""
    hashes = provenance.get("data", {})
    lines = []
    for name, settings in config.datasets.items():
        size = size_of(name, settings)
        drawn = f"{size.members:,} members, as many non-members, {size.validation:,} for validation, of {size.pool:,}"
        others = f"{size.test:,} for accuracy, {size.aux:,} for the attacker"
        lines.append([style.written(name), drawn, others, str(hashes.get(name, ""))[:16] or "–"])
    return lines


def bounds(provenance: Mapping[str, Any]) -> list[list[str]]:
    """Dataset to what all trainings tell of one member: how many have a bound, nats, ε, and how many have none."""
    return [
        [
            style.written(name),
            ", ".join(f"{count} {kind}" for kind, count in told["jobs"].items()) or "none",
            f"{told['channels']:.4g}",
            told["dp"]["stated"] if told["dp"] else "–",
            f"{told['federated']:.4g}" if told["federated"] else "–",
            f"{told['record']:.4g}",
            _of_all(told),
        ]
        for name, told in provenance.get("leakage", {}).items()
    ]


def _of_all(told: Mapping[str, Any]) -> str:
    """Nats that all jobs tell together of a member, also those of other datasets with the same records."""
    if told["unbounded"]:
        return f"no bound: {len(told['unbounded'])} have none"
    if "same_records" not in told:
        return f"{told['record']:.4g}"
    others = ", ".join(map(style.written, told["same_records"]))
    nats = "no bound" if told["record_of_all"] is None else f"{told['record_of_all']:.4g}"
    return f"{nats} with {others}, which has the same records"


def bounds_of_runs(provenance: Mapping[str, Any]) -> list[list[str]]:
    """Run to what its weights tell of one member: those of one replica, and those of all."""
    return [
        [run, *([str(found["count"]), *(found[name]["stated"] for name in _STATED)] if found else _NO_BOUND)]
        for told in provenance.get("leakage", {}).values()
        for run, found in told["runs"].items()
    ]


def releases(provenance: Mapping[str, Any]) -> list[list[str]]:
    """Item that jobs leave, if a bound covers it, why, and how many jobs leave it so."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for told in provenance.get("leakage", {}).values():
        counts.update({(one["item"], one["covered"], one["why"]): one["jobs"] for one in told["released"]})
    return [
        [item, "covered" if covered else "not covered", why, f"{jobs:,}"]
        for (item, covered, why), jobs in sorted(counts.items())
    ]


def studies(config: Config) -> list[list[str]]:
    """Studies of a configuration with all that they sweep over: data, networks, defenses, ..., replicas, runs."""
    lines = []
    for name, study in config.studies.items():
        defended = sum(max(1, len(swept)) for swept in study.defenses.values())
        sides = (study.datasets, study.models, study.rounds, study.batch_sizes)
        lines.append(
            [
                name.replace("_", " "),
                ", ".join(style.written(dataset) for dataset in study.datasets),
                ", ".join(style.written(model) for model in study.models),
                levels(study.defenses),
                ", ".join(f"{rounds:,}" for rounds in study.rounds),
                ", ".join(str(size) for size in study.batch_sizes),
                ", ".join(attack.replace("_", " ") for attack in study.attacks) or "–",
                str(study.replicas or config.replicas),
                f"{defended * math.prod(len(side) for side in sides):,}",
            ]
        )
    return lines
