"""Description of a run on its page in MLflow: a paragraph that tells what it was and what came out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from leakbound.tracking.records import Point

if TYPE_CHECKING:
    from leakbound.tracking.description import RunFacts

_OUTCOMES = (
    ("test accuracy", ("test_accuracy",)),
    ("members told from others with an AUC of", ("membership/strongest/auc", "membership/white_box/auc")),
    ("class means inverted with a squared error of", ("model_inversion/informed/mse", "model_inversion/tuned/mse")),
    ("images found from gradients with a squared error of", ("gradient_inversion/attack/mse",)),
    ("the mean image has", ("gradient_inversion/prior/mse",)),
)
"""Words before a number, and the metrics that it may be, the first that a run has."""


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
    told = ", ".join(_outcomes({point.key: point.value for point in sorted(means, key=lambda point: point.step)}))
    return f"{told[0].upper()}{told[1:]}." if told else ""


def _outcomes(last: dict[str, float]) -> Iterator[str]:
    """Words with the last value of the first metric that is there."""
    for words, keys in _OUTCOMES:
        known = [last[key] for key in keys if key in last]
        if known:
            yield f"{words} {known[0]:.3g}"
