"""Leakage of all uses of a channel together, about one record and about all records, in nats.

Inputs are the privacy event that a training wrote and the variance ratios of its channel
(:func:`leakbound.channels.signal_to_noise`). The bounds cover the inputs. A channel does not change labels,
which may reveal up to ln(classes) nats per record in addition.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.gaussian import gaussian_capacity


@dataclass(frozen=True)
class ChannelLeakage:
    """Leakage of one training, or of several through the same channel, in nats.

    Attributes:
        uses: k, uses of the most used record with independent noise. It is 1 per training if the noise is
            frozen.
        printed: n·κ for n steps, as published. It is loose for one record, and no bound for all records.
        linear: k·κ, a valid and loose bound for one record, which adds leakages instead of precisions.
        record: ½ Σ ln(1 + k μ_i/σ), the bound on what all releases together reveal about one record.
        dataset: N times ``record``, the bound for all records.
    """

    uses: int
    printed: float
    linear: float
    record: float
    dataset: float


def leakage(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> ChannelLeakage:
    """Compute all leakage figures of one training from its event and the variance ratios of one use.

    An attacker's view is computed from k noisy copies of the record. Their mean contains all that they
    reveal, and its noise has 1/k of the variance. Frozen noise gives one copy, however often it is used. The
    published total adds one capacity per step, although a step uses a whole batch and a record takes part in
    few steps.

    Args:
        event: Use of the records. Its ``uses`` is the count of the most used record.
        ratios: (d,) variance ratios μ_i/σ of one use of its channel, in [0, ∞].

    Returns:
        Nats. For fresh noise, those about one record are between κ and k·κ. They are ∞ if a ratio is ∞ and
        the record was used.

    Raises:
        ValueError: If the event is not that of a channel, or the ratios exceed the capacity that it states.

    Source:
        Tan et al. 2024, Section V, for the published total.
    """
    return composed_leakage([event], ratios)


def composed_leakage(events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"]) -> ChannelLeakage:
    """Compute the leakage of several trainings through one channel on the same records, e.g. of all replicas of a run.

    Their noise is independent, so uses add as within a training: R equal trainings leak as much as one with R
    times the uses. Frozen noise is drawn once for each training. For trainings through different channels use
    :func:`leakbound.channels.composition.composed_capacity`.

    Args:
        events: One for each training.
        ratios: As in :func:`leakage`.

    Raises:
        ValueError: As :func:`leakage`, and if there are no events, or not all are of one channel and one set
            of records.
    """
    if not events:
        raise ValueError("there are no events, so there is nothing to account for")
    for event in events:
        _check(event, ratios)
    first = events[0]
    if any(_law(event) != _law(first) for event in events):
        raise ValueError(
            "the events are of other channels or records; compose them by `channels.composed_capacity`"
        )
    uses, printed, linear = added_up(events)
    record = joint_information(ratios, uses)
    return ChannelLeakage(uses, printed, linear, record, repeated(first.population, record))


def added_up(events: Sequence[PrivacyEvent]) -> tuple[int, float, float]:
    """Add up uses, n·κ as published, and k·κ of trainings through one channel."""
    uses = sum(map(looks, events))
    capacity = events[0].capacity or 0.0
    return uses, repeated(sum(event.steps for event in events), capacity), repeated(uses, capacity)


def looks(event: PrivacyEvent) -> int:
    """Count uses of the most used record of a training with independent noise: one if the noise is frozen."""
    return event.uses if event.noise == "fresh" else min(event.uses, 1)


def _check(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> None:
    """Refuse an event that the accountant was not derived for, or whose channel has other ratios."""
    if event.mechanism != "channel":
        raise ValueError(
            f"mechanism {event.mechanism!r}: this accountant composes data-space channels only; for DP-SGD and DP-PSAC "
            "use `accounting.epsilon` and `accounting.dp_capacity`; for all others no guarantee was derived"
        )
    capacity = event.capacity
    counts = min(event.uses, event.steps, event.population)
    if capacity is None or not capacity >= 0 or event.noise not in ("fresh", "frozen") or counts < 0:
        raise ValueError(
            f"capacity {capacity}, noise {event.noise!r}, uses {event.uses}, steps {event.steps}, population "
            f"{event.population}: the event of a channel states a capacity >= 0, noise 'fresh' or 'frozen' "
            "and counts >= 0; the file is incomplete, train again"
        )
    reached = joint_information(ratios, 1)
    if reached > capacity * (1.0 + 1e-9):
        raise ValueError(
            f"the variance ratios have a capacity of {reached:.6g} nats, the event states {capacity:.6g}: they belong "
            "to another channel; compute them from the channel file of this run"
        )


def _law(event: PrivacyEvent) -> PrivacyEvent:
    """Return an event without its counts: the distribution of its noise, and the records."""
    return replace(event, steps=0, uses=0, batch_size=0)


def repeated(count: int, nats: float) -> float:
    """Multiply nats by a count. The result is 0 for a count of 0, also with ∞ nats."""
    return count * nats if count else 0.0


def joint_information(ratios: Float[np.ndarray, " d"], looks: float | int) -> float:
    """Compute the nats that k uses of one channel with independent noise reveal together, ½ Σ ln(1 + k μ/σ).

    Args:
        ratios: (d,) variance ratios of one use, in [0, ∞].
        looks: k >= 0, number of uses. Uses of a stronger or weaker channel along the same axes count by their
            share of its precision.

    Returns:
        Nats. They are 0 without uses, and otherwise ∞ if a ratio is ∞.

    Example:
        >>> round(joint_information(np.array([3.0, 0.0]), looks=5), 4)
        1.3863
    """
    if not looks:
        return 0.0
    return math.inf if np.isposinf(ratios).any() else gaussian_capacity(ratios, 1.0, float(looks))
