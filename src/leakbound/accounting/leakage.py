"""Leakage of all uses of a channel together, about one record and about all records, in nats.

Inputs are the privacy event that a training wrote and the variance ratios of its channel
(:func:`leakbound.channels.signal_to_noise`). The bounds cover the pixels. Labels, which a channel leaves untouched, may
tell up to ln(classes) nats per record on top.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.gaussian import gaussian_capacity


@dataclass(frozen=True)
class Leakage:
    """Leakage of one training, or of several through the same channel, in nats, as published and as bounded correctly.

    Attributes:
        uses: k, looks with independent noise that the attacker gets at the most used record; 1 per training if frozen.
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


def leakage(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> Leakage:
    """All leakage figures of one training, from its event and the variance ratios of one use of its channel.

    An attacker's view is computed from k noisy copies of the record. Their mean holds all they tell, and its noise has
    a k-th of the variance. Frozen noise gives one copy however often it is used. The published total adds one capacity
    per step although a step uses a whole batch and a record takes part in few steps.

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


def composed_leakage(events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"]) -> Leakage:
    """Leakage of several trainings through one channel on the same records, e.g. of all replicas of a run.

    Their noise is independent, so looks add as they do within a training: R equal trainings leak what one with R times
    the uses leaks. Frozen noise is drawn once for each training. Arguments and errors are those of :func:`leakage`;
    trainings through channels that differ compose by :func:`leakbound.channels.composition.composed_capacity`.

    Raises:
        ValueError: If there are no events, or they are not of one channel and one set of records.
    """
    if not events:
        raise ValueError("there are no events, so there is nothing to account for")
    for event in events:
        _check(event, ratios)
    first = events[0]
    if any(_law(event) != _law(first) for event in events):
        raise ValueError("the events are of other channels or records; compose them by `channels.composed_capacity`")
    uses, steps = sum(map(looks, events)), sum(event.steps for event in events)
    record = _capacity(ratios, uses) if uses else 0.0
    capacity = first.capacity or 0.0
    return Leakage(uses, _total(steps, capacity), _total(uses, capacity), record, _total(first.population, record))


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
            "capacity >= 0, noise 'fresh' or 'frozen' and a count of uses; the file is incomplete, train anew"
        )
    reached = _capacity(ratios, 1)
    if reached > capacity * (1.0 + 1e-9):
        raise ValueError(
            f"the variance ratios have a capacity of {reached:.6g} nats, the event states {capacity:.6g}: they belong "
            "to another channel; compute them from the channel file of this run"
        )


def _law(event: PrivacyEvent) -> PrivacyEvent:
    """An event without its counts: the law of its noise, and the records."""
    return replace(event, steps=0, uses=0, batch_size=0)


def _total(count: int, nats: float) -> float:
    """The nats times the count; 0 for a count of 0, also of ∞."""
    return count * nats if count else 0.0


def _capacity(ratios: Float[np.ndarray, " d"], uses: int) -> float:
    """½ Σ ln(1 + k ratio), ∞ if a ratio is infinite."""
    return math.inf if np.isposinf(ratios).any() else gaussian_capacity(ratios, 1.0, float(uses))
