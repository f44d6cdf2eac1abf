"""Description of a configuration for people: main results, data, studies, bounds and families of figures."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import ROUND_FLOOR
from itertools import accumulate
from typing import Any

import pandas as pd

from leakbound.accounting.risk import bound_text
from leakbound.accounting.statement import upper_bound
from leakbound.words import in_nats
from leakbound_lab.claims.evaluation import VERDICTS
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
    "beyond/uploads_front",
    "beyond/recipes",
    "beyond/sandwich",
    "beyond/limit",
    "tan2024/fig15_gain",
    "tan2024/fig05",
    "tan2024/fig09",
)
"""Figures that open a report, in the order of preference."""
ATTACKERS = ("strongest", "white_box")
"""Membership attacks on the last weights, in the order of preference."""
_NETWORK = ["dataset", "model"]
_ACCURACY = "test accuracy"
_ERROR = "error from a gradient"
_UPLOADS = "AUC, uploads"
_MEMBERSHIP = "AUC, last weights"
_NATS = "nats, whole training"
_OUTCOMES = {
    _ACCURACY: ("test_accuracy", ("",)),
    _UPLOADS: ("auc", ("likelihood",)),
    _MEMBERSHIP: ("auc", ATTACKERS),
    _ERROR: ("relative_mse", ("attack",)),
    _NATS: ("leakage", ("",)),
}
"""Columns of the table that opens a report: their metric, and its variants by preference."""
_MEANINGS = {
    _UPLOADS: "AUC, uploads: membership inference by the server, which sees every upload; .5 is chance.",
    _MEMBERSHIP: "AUC, last weights: the strongest membership inference by whoever gets the network; .5 is chance.",
    _ERROR: "Error: of the record that an attacker recovers from one gradient, over that of the mean record.",
    _NATS: "Nats: the most about one record, without its label; behind a channel on average over records.",
}
"""What the columns of that table say that do not say it themselves."""
_OBSERVERS = {_UPLOADS: "by a server that sees every upload", _MEMBERSHIP: "from the last weights"}
"""Columns of membership inference, and who makes it."""


def opening_picture(figures: Collection[str]) -> str | None:
    """Return the key ``paper/id`` of the figure that opens a report, None without figures."""
    return next(iter([*(key for key in _PICTURES if key in figures), *figures]), None)


def outcomes(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Compute the means that open a report, for the first dataset and network of the study with most defenses.

    Args:
        tables: Rows of studies by name.

    Returns:
        Means over replicas at the chosen learning rates, of each defense and level in order. The level is
        infinite for a defense without one. Only measured quantities have a column. The attribute ``network``
        holds dataset and model.
    """
    means = {}
    network = None
    for name, (metric, variants) in _OUTCOMES.items():
        rows = (_of_one_network(tables, metric, variant, network) for variant in variants)
        if (measured := next(filter(len, rows), None)) is not None:
            network = measured.iloc[0][_NETWORK]
            arms = measured.fillna({"level": math.inf}).groupby(["defense", "level"])
            means[name] = arms["value"].mean()
    table = pd.DataFrame(means)
    table.attrs["network"] = network
    defenses = style.ordered({defense for defense, _ in table.index})
    defenses.sort(key=lambda name: name in ("early_stopping", "stopped", "clipping"))
    return table.loc[sorted(table.index, key=lambda arm: (defenses.index(arm[0]), arm[1]))]


def attacked_runs(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Choose the run of each defense whose last weights show least of membership, by the name of the defense."""
    network = outcomes(tables).attrs["network"]
    rows = next(filter(len, (_of_one_network(tables, "auc", name, network) for name in ATTACKERS)), None)
    if rows is None:
        return {}
    means = rows.groupby(["defense", "run"])["value"].mean()
    return {defense: means[defense].idxmin() for defense in style.ordered(rows["defense"].unique())}


def outcome_lines(tables: Mapping[str, pd.DataFrame]) -> list[list[str]]:
    """Write :func:`outcomes` as text, the headings first. Empty without outcomes."""
    table = outcomes(tables)
    lines = []
    for arm, row in table.iterrows():
        texts = row.map(lambda value: "–" if math.isnan(value) else _number(value))
        if row.get(_NATS, 0.0) > 0.0:
            texts[_NATS] = bound_text(row[_NATS])
        elif _NATS in row and row.get(_ACCURACY, math.nan) >= 0.0:
            texts[_NATS] = "no bound"  # none is stated for this training
        lines.append([*_arm(arm), *texts])
    return [[_written(table), "level", *table.columns], *lines] if lines else []


def meanings(lines: Sequence[Sequence[str]]) -> list[str]:
    """Explain the columns that the lines of :func:`outcome_lines` have, and no others."""
    return [text for column, text in _MEANINGS.items() if lines and column in lines[0]]


def _written(table: pd.DataFrame) -> str:
    """Write dataset and network of outcomes."""
    return ", ".join(map(style.written, table.attrs["network"]))


def _arm(arm: Any) -> list[str]:
    """Write a defense, and its level with the unit."""
    defense, level = arm
    return [style.style_of(defense).label, style.level_label(defense, level, unit=True)]


def sentences(tables: Mapping[str, pd.DataFrame], totals: Mapping[str, int]) -> list[str]:
    """Write the sentences that open a report: on verdicts, membership inference and demonstrated leakage.

    Args:
        tables: Rows of studies by name.
        totals: Verdict to number of claims.
    """
    counts = {name: totals[name] for name in VERDICTS if totals.get(name)}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items())
    verdicts = [f"Of {sum(counts.values())} claims about experiments: {listed}."] if counts else []
    return [*verdicts, *_membership(tables), *_demonstrated(tables)]


def _membership(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield for each observer a sentence on the defense behind which it sees least of membership, and its accuracy."""
    table = outcomes(tables)
    for column, observer in _OBSERVERS.items():
        if not {_ACCURACY, column} <= set(table.columns):
            continue
        both = table.dropna(subset=[_ACCURACY, column])
        least = both[column].idxmin()
        written = [
            f"{', '.join(filter(None, _arm(arm)))}: {_number(row[column])} at a test accuracy of "
            f"{_number(row[_ACCURACY])}"
            for arm, row in both.iterrows()
            if arm[0] == "none" or arm == least
        ]
        network, least_last = _written(table), "; least under ".join(written)
        yield f"Membership inference {observer} ({network}), AUC (chance is .5): {least_last}."


def _demonstrated(tables: Mapping[str, pd.DataFrame]) -> Iterator[str]:
    """Yield a sentence on the largest share of a bound that an attack proves."""
    for table in tables.values():
        if not {"run", "metric", "variant", "unit"} <= set(table.columns):
            continue
        rows = table[table["metric"].astype(str).str.endswith("_nats")]
        shares = rows.pivot_table(index=["run", "metric", "unit"], columns="variant", values="value")
        if {"demonstrated", "allowed"} <= set(shares.columns):
            run, metric, _ = best = (shares["demonstrated"] / shares["allowed"]).idxmax()
            shown = bound_text(shares["demonstrated"][best], ROUND_FLOOR)
            allowed = bound_text(shares["allowed"][best])
            release = metric.replace("images", "noisy copies").removesuffix("_nats").replace("_", " ")
            proven = f"Attacks prove {shown} of the {in_nats(allowed)} about one record"
            yield f"{proven} that its {release} may reveal ({run})."
            return


def _number(value: float) -> str:
    """Write a number with three digits, or one if it is below 0.001."""
    return f"{value:.3g}" if value >= 1e-3 else f"{value:.0e}"


def _of_one_network(
    tables: Mapping[str, pd.DataFrame], metric: str, variant: str, network: pd.Series | None
) -> pd.DataFrame:
    """Choose sound rows of a metric in all studies.

    They are those of the longest training and the smallest batches of the study with most defenses, for a
    dataset and network. Without one, they are those of its first dataset and network.
    """
    sound = []
    for table in tables.values():
        if {"chosen", "defense"} <= set(table.columns):
            rows = table[(table["metric"] == metric) & (table["variant"] == variant) & table["chosen"]]
            rows = rows if network is None else rows[(rows[_NETWORK] == network).all(axis=1)]
            sound.append(rows[(rows["status"].astype(str) == "") & rows["value"].notna()])
    best = max(sound, key=lambda rows: rows["defense"].nunique(), default=pd.DataFrame())
    if best.empty:
        return best
    rows = pd.concat(sound)
    rows = rows[(rows[_NETWORK] == best.iloc[0][_NETWORK]).all(axis=1)]
    rows = rows[rows["rounds"] == best["rounds"].max()]
    return rows[rows["batch_size"] == best["batch_size"].min()]
