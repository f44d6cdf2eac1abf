"""Opening of a run in MLflow: the few numbers that readers look for first, and a paragraph that tells them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from leakbound.tracking.records import Point

if TYPE_CHECKING:
    from leakbound.tracking.description import RunFacts

BRIEF = "brief"
"""Group of the headlines. Every other group sorts after it, and MLflow shows groups in that order."""
HEADLINES = {
    "accuracy": ("curves/test_accuracy",),
    "leakage_nats": ("leakage/replica/record", "federated/leak_total", "leakage/so_far"),
    "membership_auc": ("membership/strongest/auc", "membership/white_box/auc"),
    "model_inversion_mse": ("model_inversion/informed/mse", "model_inversion/tuned/mse"),
    "gradient_inversion_mse": ("gradient_inversion/attack/mse",),
    "mean_image_mse": ("gradient_inversion/prior/mse",),
}
"""Headline to the metrics that it may be, of which the first counts that a run has."""
_OUTCOMES = {
    "accuracy": "test accuracy",
    "membership_auc": "members told from others with an AUC of",
    "model_inversion_mse": "class means inverted with a squared error of",
    "gradient_inversion_mse": "images found from gradients with a squared error of",
    "mean_image_mse": "the mean image has",
}
"""Headlines that the paragraph tells, with the words before their numbers; its bound is a sentence of its own."""


def headlines(points: Sequence[Point]) -> Iterator[Point]:
    """The few metrics to look at first: the last value of each, at step 0, so that charts draw a bar for each run."""
    last = {point.key: point for point in sorted(points, key=lambda point: point.step)}
    for name, keys in HEADLINES.items():
        known = [last[key] for key in keys if key in last]
        if known:
            yield known[0]._replace(key=f"{BRIEF}/{name}", step=0)


def summary(facts: RunFacts, means: Sequence[Point], bound: str, *, failed: bool) -> str:
    """The paragraph.

    Args:
        facts: Name of the run, and all that it is found by.
        means: Means over replicas; the last step of each counts.
        bound: Sentence on what it may tell; empty without one.
        failed: Whether a replica diverged, so that the run has no results.
    """
    told = ["A replica diverged: the run shows no mean." if failed else _came_out(means), bound]
    return " ".join(sentence for sentence in (_was(facts), *told) if sentence)


def _was(facts: RunFacts) -> str:
    """Sentence on what was run."""
    level = "" if facts.level is None else f" at level {facts.level:g}"
    defense = "no defense" if facts.mechanism == "none" else f"the defense {facts.defense}{level}"
    count = f"{facts.replicas} {'replica' if facts.replicas == 1 else 'replicas'}"
    work = f"trained for {facts.rounds:,} rounds, batch size {facts.batch_size}" if facts.rounds else "not trained"
    return f"{facts.model} on {facts.dataset} with {defense}, {work}: {count}."


def _came_out(means: Sequence[Point]) -> str:
    """Sentence with the results that readers look for first."""
    found = {point.key.removeprefix(f"{BRIEF}/"): point.value for point in headlines(means)}
    told = ", ".join(f"{words} {found[name]:.3g}" for name, words in _OUTCOMES.items() if name in found)
    return f"{told[0].upper()}{told[1:]}." if told else ""
