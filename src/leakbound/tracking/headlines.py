"""Opening of a run in MLflow: the few numbers that readers need first, and a paragraph that states them."""

from collections.abc import Iterator, Sequence

from leakbound.tracking.run_records import Point, RunFacts

BRIEF = "brief"
"""Group of the headlines. Every other group sorts after it, and MLflow shows groups in that order."""
HEADLINES = {
    "accuracy": ("curves/test_accuracy",),
    "leakage_nats": ("leakage/replica/record", "federated/leak_total", "leakage/so_far"),
    "membership_auc": ("membership/strongest/auc", "membership/white_box/auc"),
    "model_inversion_gain": ("model_inversion/informed/gain_over_aux",),
    "gradient_inversion_mse": ("gradient_inversion/attack/mse",),
    "mean_image_mse": ("gradient_inversion/prior/mse",),
}
"""Headline to its possible metrics. The first one that a run has is used."""
_OUTCOMES = {
    "accuracy": "test accuracy",
    "membership_auc": "membership inference with an AUC of",
    "model_inversion_gain": "part of the error of the attacker's own class means that model inversion removes",
    "gradient_inversion_mse": "gradient inversion with a mean squared error of",
    "mean_image_mse": "mean squared error of the mean image",
}
"""Headlines that the paragraph states, with the words before their numbers. The bound has its own
sentence."""


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
    outcome = "A replica diverged: the run shows no mean." if failed else _outcome(means)
    return " ".join(filter(None, (_setting(facts), outcome, bound)))


def _setting(facts: RunFacts) -> str:
    """Write a sentence on what was run."""
    level = f" at {facts.level_label}" if facts.level_label else ""
    defense = "no defense" if facts.defense == "none" else f"the defense {facts.defense_label}{level}"
    count = f"{facts.replicas} {'replica' if facts.replicas == 1 else 'replicas'}"
    work = (
        f"trained for {facts.rounds:,} rounds, batch size {facts.batch_size}"
        if facts.rounds
        else "not trained"
    )
    return f"{facts.model} on {facts.dataset} with {defense}, {work}: {count}."


def _outcome(means: Sequence[Point]) -> str:
    """Write a sentence with the headlines."""
    values = {point.key.removeprefix(f"{BRIEF}/"): point.value for point in headlines(means)}
    parts = [f"{words} {values[name]:.3g}" for name, words in _OUTCOMES.items() if name in values]
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""
