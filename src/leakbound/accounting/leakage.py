"""Leakage of all uses of a channel together, about one record and about all records, in nats.

Inputs are the privacy event that a training wrote and the variance ratios of its channel
(:func:`leakbound.channels.signal_to_noise`). The bounds cover the pixels. Labels, which a channel leaves
untouched, may tell up to ln(classes) nats per record on top.
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
    """Leakage of one training, or of several through the same channel, in nats, as published and as bounded correctly.

    Attributes:
        uses: k, looks with independent noise that the attacker gets at the most used record; 1 per training
            if frozen.
        printed: n·κ for n steps, as published: loose for one record, and no bound for all of them.
        linear: k·κ, a valid and loose bound for one record that adds leakages instead of precisions.
        record: ½ Σ ln(1 + k μ_i/σ), what everything an attacker ever sees tells of one record, at most.
        dataset: N times ``record``, what it tells of all records, at most.
    """

    uses: int
    printed: float
    linear: float
    record: float
    dataset: float


def leakage(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> ChannelLeakage:
    """All leakage figures of one training, from its event and the variance ratios of one use of its channel.

    An attacker's view is computed from k noisy copies of the record. Their mean holds all they tell, and its
    noise has a k-th of the variance. Frozen noise gives one copy however often it is used. The published
    total adds one capacity per step although a step uses a whole batch and a record takes part in few steps.

    Args:
        event: Use of the records; its ``uses`` is the count of the most used one.
        ratios: (d,) variance ratios μ_i/σ of one use of its channel, in [0, ∞].

    Returns:
        Nats, about one record between κ and k·κ for fresh noise; ∞ if a ratio is and the record was used.

    Raises:
        ValueError: If the event is not that of a channel, or the ratios exceed the capacity that it states.

    Source:
        Tan et al. 2024, Section V, for the published total.
    """
    return composed_leakage([event], ratios)


def composed_leakage(events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"]) -> ChannelLeakage:
    """Leakage of several trainings through one channel on the same records, e.g. of all replicas of a run.

    Their noise is independent, so looks add as they do within a training: R equal trainings leak what one
    with R times the uses leaks. Frozen noise is drawn once for each training. Arguments and errors are those
    of :func:`leakage`; trainings through channels that differ compose by
    :func:`leakbound.channels.composition.composed_capacity`.

    Raises:
        ValueError: If there are no events, or they are not of one channel and one set of records.
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
    """Looks, n·κ as published, and k·κ of trainings through one channel."""
    uses = sum(map(looks, events))
    capacity = events[0].capacity or 0.0
    return uses, repeated(sum(event.steps for event in events), capacity), repeated(uses, capacity)


def looks(event: PrivacyEvent) -> int:
    """Looks with independent noise at the most used record of a training through a channel: one if it is frozen."""
    return event.uses if event.noise == "fresh" else min(event.uses, 1)


def _check(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> None:
    """Refuse an event that the accountant was not derived for, or whose channel has other ratios."""
    if event.mechanism != "channel":
        raise ValueError(
            f"mechanism {event.mechanism!r}: this accountant composes data-space channels only; for DP-SGD and DP-PSAC "
            "use `accounting.epsilon` and `accounting.dp_capacity`; for all others no guarantee was derived"
        )
    capacity = event.capacity
    if capacity is None or not capacity >= 0 or event.noise not in ("fresh", "frozen") or event.uses < 0:
        raise ValueError(
            f"capacity {capacity}, noise {event.noise!r}, uses {event.uses}: the event of a channel states a "
            "capacity >= 0, noise 'fresh' or 'frozen' and a count of uses; the file is incomplete, train again"
        )
    reached = joint_information(ratios, 1)
    if reached > capacity * (1.0 + 1e-9):
        raise ValueError(
            f"the variance ratios have a capacity of {reached:.6g} nats, the event states {capacity:.6g}: they belong "
            "to another channel; compute them from the channel file of this run"
        )


def _law(event: PrivacyEvent) -> PrivacyEvent:
    """An event without its counts: the law of its noise, and the records."""
    return replace(event, steps=0, uses=0, batch_size=0)


def repeated(count: int, nats: float) -> float:
    """The nats times the count; 0 for a count of 0, also of ∞."""
    return count * nats if count else 0.0


def joint_information(ratios: Float[np.ndarray, " d"], looks: int) -> float:
    """Nats that some looks with independent noise through one channel reveal together, ½ Σ ln(1 + k μ/σ).

    Args:
        ratios: (d,) variance ratios of one use, in [0, ∞].
        looks: k >= 0.

    Returns:
        Nats; 0 for no looks, otherwise ∞ if a ratio is.

    Example:
        >>> round(joint_information(np.array([3.0, 0.0]), looks=5), 4)
        1.3863
    """
    if not looks:
        return 0.0
    return math.inf if np.isinf(ratios).any() else gaussian_capacity(ratios, 1.0, float(looks))
