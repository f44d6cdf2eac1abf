"""The first screen of a report: the main results, in a few sentences and pictures."""

from collections.abc import Collection, Iterator, Mapping

import pandas as pd

from leakbound.claims.evaluation import VERDICTS
from leakbound.figures import style

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
