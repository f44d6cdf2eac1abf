"""Values of a run's curves and scores, their means over replicas, and the numbers that readers need first."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leakbound.tracking.run_records import Point, RunFacts

if TYPE_CHECKING:
    import pandas as pd

BRIEF = "brief"
"""Group of the headlines. Every other group sorts after it, and MLflow shows groups in that order."""
HEADLINES = {
    "accuracy": ("curves/test_accuracy",),
    "leakage_nats": ("leakage/replica/record", "federated/leak_total", "leakage/so_far"),
    "membership_auc_last_weights": ("membership/strongest/auc", "membership/white_box/auc"),
    "membership_auc_uploads": ("membership_uploads/likelihood/auc",),
    "model_inversion_gain": ("model_inversion/informed/gain_over_aux",),
    "gradient_inversion_mse": ("gradient_inversion/attack/mse",),
    "mean_image_mse": ("gradient_inversion/prior/mse",),
}
"""Headline to its possible metrics. The first one that a run has is used."""
# Headlines that the paragraph states, with the words before their numbers. The bound has its own sentence.
_OUTCOMES = {
    "accuracy": "test accuracy",
    "membership_auc_last_weights": "membership inference from the last weights with an AUC of",
    "membership_auc_uploads": "membership inference from all uploads with an AUC of",
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


# Curves of the accountant, which belong to the group of its bounds.
_SO_FAR = {"leakage": "leakage/so_far", "epsilon": "leakage/epsilon_so_far"}
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
        return self.kind == "curve" and not self.finite and self.point.key not in _SO_FAR.values()


def metric_name(*words: str) -> str:
    """Join words by slashes, with the characters that every MLflow store allows."""
    return "/".join(re.sub(r"[^A-Za-z0-9_. -]", "_", word).strip(".") or "_" for word in words if word)[:250]


def curve_values(curves: pd.DataFrame | None, start: int, end: int, rounds: int) -> Iterator[Measurement]:
    """Yield the values of curves. The time of the job is spread evenly over its steps.

    Args:
        curves: Rows (replica, step, metric, value). None for an untrained network.
        start: Start of the job, milliseconds since 1970.
        end: End of the job, milliseconds since 1970.
        rounds: Steps of the training.
    """
    if curves is None:
        return
    for row in curves.itertuples():
        done = min(row.step / rounds, 1.0) if rounds else 1.0
        time = start + round(done * (end - start))
        name = _SO_FAR.get(str(row.metric)) or metric_name("curves", str(row.metric))
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
