"""Values of a run's curves and scores, their means over replicas, and the numbers that readers need first."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leakbound.accounting.risk import bound_text
from leakbound.accounting.statement import IF_SECRET, KINDS, LABEL_WORDS, Statement
from leakbound_lab.tracking.run_records import Point, RunFacts

if TYPE_CHECKING:
    import pandas as pd

BRIEF = "brief"
"""Group of the headlines. Every other group sorts after it, and MLflow shows groups in that order."""
HEADLINES = {
    "accuracy": ("curves/test_accuracy",),
    "membership_auc_uploads": ("membership_uploads/likelihood/auc",),
    "membership_auc_last_weights": ("membership/strongest/auc", "membership/white_box/auc"),
    "model_inversion_gain": ("model_inversion/informed/gain_over_aux",),
    "gradient_inversion_mse": ("gradient_inversion/attack/mse",),
    "mean_image_mse": ("gradient_inversion/prior/mse",),
}
"""Headline to its possible metrics, of which the first that a run has is used. The server sees more, and is first."""
STATED = tuple(
    f"{kind}_{meaning}"
    for kind in KINDS
    for meaning in ("nats_per_record_average_with_labels", "nats_per_record_each_with_labels")
)
"""Headlines of bounds that an experiment's page has columns for."""
# Headlines that the paragraph states, with the words before their numbers. The bound has its own sentence.
_OUTCOMES = {
    "accuracy": "test accuracy",
    "membership_auc_uploads": "membership inference from all uploads with an AUC of",
    "membership_auc_last_weights": "membership inference from the last weights with an AUC of",
    "model_inversion_gain": "part of the error of the attacker's own class means that model inversion removes",
    "gradient_inversion_mse": "gradient inversion with a mean squared error of",
    "mean_image_mse": "mean squared error of the mean image",
}


def headlines(points: Sequence[Point]) -> Iterator[Point]:
    """Yield the headlines: the last value of each metric with three digits, at step 0.

    Charts draw a metric without other steps as a bar for each run.
    """
    last = {point.key: point for point in sorted(points, key=lambda point: point.step)}
    for name, keys in HEADLINES.items():
        present = [last[key] for key in keys if key in last]
        if present:
            value = float(f"{present[0].value:.3g}")
            yield present[0]._replace(key=f"{BRIEF}/{name}", step=0, value=value)
    # Numbers of different meanings have different names, as statements give them.
    for kind in KINDS:
        for key, point in sorted(last.items()):
            if key.startswith(f"{kind}/replica/"):
                name = f"{kind}_{key.removeprefix(f'{kind}/replica/')}"
                yield point._replace(key=f"{BRIEF}/{name}", value=float(bound_text(point.value)))


def run_summary(facts: RunFacts, means: Sequence[Point], bound: str, *, failed: bool) -> str:
    """Write the paragraph that opens a run: what was run, its results, its bound.

    Args:
        facts: Name and coordinates of the run.
        means: Means over replicas. The last step of each counts.
        bound: Sentence on how much it may leak. Empty without one.
        failed: Whether a replica diverged, so that the run has no results.
    """
    level = f" at {facts.level_label}" if facts.level_label else ""
    defense = "no defense" if facts.defense == "none" else f"the defense {facts.defense_label}{level}"
    count = f"{facts.replicas} {'replica' if facts.replicas == 1 else 'replicas'}"
    trained = f"trained for {facts.rounds:,} rounds, batch size {facts.batch_size}"
    work = trained if facts.rounds else "not trained"
    values = {point.key.removeprefix(f"{BRIEF}/"): point.value for point in headlines(means)}
    parts = [f"{words} {values[name]:.3g}" for name, words in _OUTCOMES.items() if name in values]
    outcome = f"{', '.join(parts)}." if parts else ""
    outcome = outcome[:1].upper() + outcome[1:]
    if failed:
        outcome = "A replica diverged: the run shows no mean."
    setting = f"{facts.model} on {facts.dataset} with {defense}, {work}: {count}."
    return " ".join(filter(None, (setting, outcome, bound)))


_SO_FAR = {"leakage": "nats", "epsilon": "epsilon"}  # curves of the accountant
ALL_REPLICAS = -1
"""Number of the replica for values of all replicas together."""


@dataclass(frozen=True)
class Measurement:
    """One value of one replica.

    Attributes:
        kind: ``curve`` of the training, ``score`` of an attack, or ``interval`` for an end of a score's
            interval.
        replica: Number of the replica, or ``ALL_REPLICAS``.
        point: The value with its name, step and time.
    """

    kind: str
    replica: int
    point: Point

    @property
    def finite(self) -> bool:
        """True unless the value is infinite or not a number."""
        return math.isfinite(self.point.value)

    @property
    def diverged(self) -> bool:
        """True for a diverged training. A bound is infinite without noise, whatever the training does."""
        return self.kind == "curve" and not self.finite and "/so_far/" not in self.point.key


def metric_name(*words: str) -> str:
    """Join words by slashes, with the characters that every MLflow store allows."""
    return "/".join(re.sub(r"[^A-Za-z0-9_. -]", "_", word).strip(".") or "_" for word in words if word)[:250]


def so_far_names(statement: Statement | None) -> dict[str, str]:
    """Return the metrics of the accountant's curves: nats of the values alone, unless labels are covered, and ε."""
    names = {}
    for curve, quantity in _SO_FAR.items():
        metrics = statement.metrics() if statement is not None else {}
        stated = next((name for name in metrics if name.partition("/")[2].startswith(quantity)), None)
        if stated is None or statement is None:
            names[curve] = f"{IF_SECRET}/so_far/{quantity}"
            continue
        kind, _, name = stated.partition("/")
        if statement.label_kind != "covered":
            name = f"{name.removesuffix(f'_{LABEL_WORDS[statement.label_kind]}')}_without_labels"
        names[curve] = f"{kind}/so_far/{name}"
    return names


def statement_values(statements: Mapping[str, Statement], end: int) -> Iterator[Measurement]:
    """Yield the numbers of statements, of one replica and of all, by names that say what they mean."""
    for of, statement in statements.items():
        for name, value in statement.metrics().items():
            kind, _, meaning = name.partition("/")
            yield Measurement("score", ALL_REPLICAS, Point(f"{kind}/{of}/{meaning}", 0, end, value))


def curve_values(
    curves: pd.DataFrame | None, start: int, end: int, rounds: int, so_far: Mapping[str, str]
) -> Iterator[Measurement]:
    """Yield the values of curves. The time of the job is spread evenly over its steps.

    Args:
        curves: Rows (replica, step, metric, value). None for an untrained network.
        start: Start of the job, milliseconds since 1970.
        end: End of the job, milliseconds since 1970.
        rounds: Steps of the training.
        so_far: Curve of the accountant to its metric, from :func:`so_far_names`.
    """
    if curves is None:
        return
    for row in curves.itertuples():
        done = min(row.step / rounds, 1.0) if rounds else 1.0
        time = start + round(done * (end - start))
        name = so_far.get(str(row.metric)) or metric_name("curves", str(row.metric))
        yield Measurement("curve", int(row.replica), Point(name, int(row.step), time, float(row.value)))


def score_values(
    source: str, rows: pd.DataFrame, end: int, over_units: Mapping[str, str]
) -> Iterator[Measurement]:
    """Yield a value for each metric, that of all units or the summary over them, and its interval if known.

    Args:
        source: Name of the attack, or of another origin of scores.
        rows: Rows (replica, variant, unit, metric, value, and optionally low, high).
        end: End of the job, milliseconds since 1970.
        over_units: Source to the summary over units, by its name in NumPy. Default: the mean.
    """
    group_name = "scores" if source < BRIEF else ""  # MLflow sorts groups by name, and the brief comes first
    summary = getattr(np, over_units.get(source, "mean"))
    columns = {name: rows[name].to_numpy(float) for name in ("value", "low", "high") if name in rows}
    of_all_units = rows["unit"].to_numpy() == -1
    groups = rows.groupby(["replica", "variant", "metric"]).indices
    for (replica, variant, metric), group in sorted(groups.items()):
        whole = group[of_all_units[group]]
        for column in columns if len(whole) else ("value",):
            value = float(summary(columns[column][whole if len(whole) else group]))
            name = metric_name("spread", source, str(variant), f"{metric}_{column}")
            if column == "value":
                name = metric_name(group_name, source, str(variant), str(metric))
            kind = "score" if column == "value" else "interval"
            # A metric without other steps than 0 is drawn as bars over runs, not as a curve of one point.
            yield Measurement(kind, int(replica), Point(name, 0, end, value))


def means(values: Iterable[Measurement], replicas: int, *, diverged: bool) -> list[Point]:
    """Compute means over replicas of every curve and score.

    Args:
        values: Measurements of all replicas.
        replicas: Number of replicas. A curve ends where a replica has no value.
        diverged: Whether a replica diverged. Then scores have no mean.

    Returns:
        Finite values, by name and step.
    """
    groups: dict[tuple[str, str, int], list[Measurement]] = defaultdict(list)
    for value in values:
        if value.kind != "interval":
            groups[value.kind, value.point.key, value.point.step].append(value)
    points = []
    for (kind, key, step), group in groups.items():
        misleading = len(group) != replicas if kind == "curve" else diverged
        averaged = [value for value in group if value.replica == ALL_REPLICAS]
        averaged = averaged or ([] if misleading else group)
        if averaged and all(value.finite for value in averaged):
            mean = sum(value.point.value for value in averaged) / len(averaged)
            points.append(Point(key, step, group[0].point.timestamp, mean))
    return sorted(points, key=lambda point: (point.key, point.step))
