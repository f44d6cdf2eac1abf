"""Description of a configuration for people: main results, data, studies, bounds and families of figures."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import pandas as pd

from leakbound.claims.evaluation import VERDICTS
from leakbound.config.catalogue import FigureConfig
from leakbound.config.data import size_of
from leakbound.config.whole import Config
from leakbound.figures import style

_STATED = ("replica", "replicas")
_NO_BOUND = ("–", "no bound", "no bound")


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
            f"{leakage['channels']:.4g}",
            leakage["dp"]["stated"] if leakage["dp"] else "–",
            f"{leakage['federated']:.4g}" if leakage["federated"] else "–",
            f"{leakage['record']:.4g}",
            f"{leakage['labels']:.4g}" if "labels" in leakage else "–",
            _of_all(leakage),
        ]
        for name, leakage in provenance.get("leakage", {}).items()
    ]


def _of_all(leakage: Mapping[str, Any]) -> str:
    """Write the nats that all jobs together leak about a member, also through other datasets of the same records."""
    if leakage["unbounded"]:
        return f"no bound: {len(leakage['unbounded'])} have none"
    if "same_records" not in leakage:
        return f"{leakage['record']:.4g}"
    others = ", ".join(map(style.written, leakage["same_records"]))
    nats = "no bound" if leakage["record_of_all"] is None else f"{leakage['record_of_all']:.4g}"
    return f"{nats} with {others}, which has the same records"


def bounds_of_runs(provenance: Mapping[str, Any]) -> list[list[str]]:
    """List how much the weights of each run leak about one member: those of one replica, and those of all."""
    return [
        [run, *([str(bound["count"]), *(bound[name]["stated"] for name in _STATED)] if bound else _NO_BOUND)]
        for leakage in provenance.get("leakage", {}).values()
        for run, bound in leakage["runs"].items()
    ]


def releases(provenance: Mapping[str, Any]) -> list[list[str]]:
    """List the releases of jobs, whether a bound covers them and why, and the number of jobs."""
    counts: Counter[tuple[str, bool, str]] = Counter()
    for leakage in provenance.get("leakage", {}).values():
        counts.update(
            {
                (release["item"], release["covered"], release["why"]): release["jobs"]
                for release in leakage["released"]
            }
        )
    return [
        [item, "covered" if covered else "not covered", why, f"{jobs:,}"]
        for (item, covered, why), jobs in sorted(counts.items())
    ]


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


_PICTURES = (
    "beyond/recipes",
    "beyond/sandwich",
    "beyond/limit",
    "tan2024/fig15_gain",
    "tan2024/fig05",
    "tan2024/fig09",
)
"""Figures that open a report, in the order of preference."""
_ARMS = 5
_RECIPES = ("early_stopping", "stopped", "clipping")
_ATTACKERS = ("strongest", "white_box")


def pictures(figures: Collection[str], most: int = 3) -> list[str]:
    """List the keys ``paper/id`` of the figures that open a report: preferred ones, then others in their order."""
    first = [key for key in _PICTURES if key in figures]
    return [*first, *(key for key in figures if key not in first)][:most]


def sentences(tables: Mapping[str, pd.DataFrame], totals: Mapping[str, int]) -> list[str]:
    """Write sentences on verdicts, accuracy, membership inference, gradient inversion and demonstrated leakage.

    Numbers are means over replicas at the chosen learning rates, for the first dataset and network of a
    study.

    Args:
        tables: Rows of studies by name.
        totals: Verdict to number of claims.
    """
    return [
        *_verdicts(totals),
        *_accuracy(tables),
        *_membership(tables),
        *_gradients(tables),
        *_demonstrated(tables),
    ]


def _verdicts(totals: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence with the counts of verdicts."""
    claims = sum(totals.get(name, 0) for name in VERDICTS)
    if claims:
        counts = ", ".join(f"{totals[name]} {name}" for name in VERDICTS if totals.get(name))
        yield f"Of {claims} claims about experiments: {counts}."


def _accuracy(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the accuracy of each defense."""
    rows = _of_one_network(tables, "test_accuracy", "")
    if len(rows):
        yield f"Test accuracy{_place(rows)}: {_arms(rows)}."


def _membership(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the AUC of the strongest attack on the last weights, and on the uploads."""
    for seen, variants in (("last weights", _ATTACKERS), ("uploads", ("likelihood",))):
        for variant in variants:
            rows = _of_one_network(tables, "auc", variant)
            if len(rows):
                yield (
                    f"Membership inference from the {seen} by the "
                    f"{style.style_of(variant).label}{_place(rows)}, AUC (chance is .5): {_arms(rows)}."
                )
                break


def _gradients(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the error of records recovered from a gradient, relative to the mean record."""
    errors = _of_one_network(tables, "relative_mse", "attack")
    prior = _of_one_network(tables, "mse", "prior")
    if len(errors) and len(prior):
        yield (
            f"Error of the record recovered from one gradient{_place(errors)}, over that of the mean record, "
            f"which is {_number(prior['value'].mean())}: {_arms(errors)}."
        )


def _demonstrated(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the largest share of a bound that an attack proves."""
    for rows in tables.values():
        if not {"run", "metric", "variant", "unit"} <= set(rows.columns):
            continue
        nats = rows[
            rows["metric"].astype(str).str.endswith("_nats")
            & rows["variant"].isin(["demonstrated", "allowed"])
        ]
        shares = nats.pivot_table(index=["run", "metric", "unit"], columns="variant", values="value").dropna()
        if shares.empty or not {"demonstrated", "allowed"} <= set(shares.columns):
            continue
        run, metric, _ = best = (shares["demonstrated"] / shares["allowed"]).idxmax()
        shown, allowed = (_number(shares.loc[best, name]) for name in ("demonstrated", "allowed"))
        release = (
            "noisy copies" if metric == "images_nats" else metric.removesuffix("_nats").replace("_", " ")
        )
        yield f"Attacks prove {shown} of the {allowed} nats about one record that its {release} may reveal ({run})."
        return


def _number(value: float) -> str:
    """Write a number with three digits, or one if it is below 0.001."""
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.0e}"


def _of_one_network(tables: Mapping[str, pd.DataFrame], metric: str, variant: str) -> pd.DataFrame:
    """Choose sound rows of a metric in the study with most defenses.

    They are those of the first dataset and network, the longest training and the smallest batches.
    """
    needed = {
        "metric",
        "variant",
        "defense",
        "level",
        "dataset",
        "model",
        "rounds",
        "batch_size",
        "chosen",
        "status",
    }
    best = pd.DataFrame()
    for table in tables.values():
        if not needed <= set(table.columns):
            continue
        rows = table[(table["metric"] == metric) & (table["variant"] == variant) & table["chosen"]]
        rows = rows[(rows["status"].astype(str) == "") & rows["value"].notna()]
        if len(rows) and (best.empty or rows["defense"].nunique() > best["defense"].nunique()):
            best = rows
    if best.empty:
        return best
    first = best.iloc[0]
    best = best[(best["dataset"] == first["dataset"]) & (best["model"] == first["model"])]
    best = best[best["rounds"] == best["rounds"].max()]
    return best[best["batch_size"] == best["batch_size"].min()]


def _place(rows: pd.DataFrame) -> str:
    """Write dataset and network in brackets."""
    first = rows.iloc[0]
    return f" ({style.written(first['dataset'])}, {style.written(first['model'])})"


def _arms(rows: pd.DataFrame) -> str:
    """Write the means of the first few defenses at their outer levels. Recipes of plain SGD come last."""
    names = sorted(style.ordered(rows["defense"].unique()), key=lambda name: name in _RECIPES)
    return "; ".join(_arm(name, rows[rows["defense"] == name]) for name in names[:_ARMS])


def _arm(defense: str, rows: pd.DataFrame) -> str:
    """Write a defense with its mean, or with the means of its lowest and its highest level."""
    means = rows.groupby("level")["value"].mean()  # leaves out rows without a level
    label = style.style_of(defense).label
    if means.empty:
        return f"{label} {_number(rows['value'].mean())}"
    ends = sorted({means.index.min(), means.index.max()})
    written = [
        f"{_number(means[level])} ({style.level_label(defense, level)})".removesuffix(" ()") for level in ends
    ]
    return f"{label} {' to '.join(written)}"
