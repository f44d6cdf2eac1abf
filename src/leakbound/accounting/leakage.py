"""Leakage of all uses of a channel together, about one record and about all records, in nats.

Inputs are the privacy event that a training wrote and the variance ratios of its channel
(:func:`leakbound.channels.signal_to_noise`). The bounds cover the pixels. Labels, which a channel leaves untouched, may
tell up to ln(classes) nats per record on top. Every function raises a ``ValueError`` for the event of another
mechanism.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.gaussian import gaussian_capacity


@dataclass(frozen=True)
class Leakage:
    """Leakage of one training, in nats, as published and as bounded correctly.

    Attributes:
        uses: k, looks with independent noise that the attacker gets at the most used record; 1 for frozen noise.
        printed: n·κ for n steps, as published: neither tight nor about one record.
        linear: k·κ, a valid bound for one record that adds leakages instead of precisions.
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

    Raises:
        ValueError: If the capacity that the event states is exceeded by the ratios.
    """
    record = record_leakage(event, ratios)
    return Leakage(
        uses=independent_uses(event),
        printed=printed_leakage(event),
        linear=linear_leakage(event),
        record=record,
        dataset=_total(event.population, record),
    )


def record_leakage(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> float:
    """Most that a whole training tells of one record, ½ Σ ln(1 + k μ_i/σ).

    An attacker's view is computed from k noisy copies of the record. Their mean holds all they tell, and its noise has
    a k-th of the variance. Frozen noise gives one copy however often it is used.

    Args:
        event: Use of the records; its ``uses`` is the count of the most used one.
        ratios: (d,) variance ratios μ_i/σ of one use of its channel, in [0, ∞].

    Returns:
        Nats, between κ and k·κ for fresh noise; ∞ if a ratio is and the record was used.

    Raises:
        ValueError: If the capacity that the event states is exceeded by the ratios.
    """
    capacity = _channel_capacity(event)
    reached = _capacity(ratios)
    if reached > capacity * (1.0 + 1e-9):
        raise ValueError(
            f"the variance ratios have a capacity of {reached:.6g} nats, the event states {capacity:.6g}: they belong "
            "to another channel; compute them from the channel file of this run"
        )
    uses = independent_uses(event)
    return _capacity(ratios, float(uses)) if uses else 0.0


def linear_leakage(event: PrivacyEvent) -> float:
    """Sum of the capacities of all uses of the most used record, k·κ; valid and loose."""
    return _total(independent_uses(event), _channel_capacity(event))


def printed_leakage(event: PrivacyEvent) -> float:
    """Total information as published, n·κ for n local steps.

    It adds one capacity per step although a step uses a whole batch and a record takes part in few steps.

    Source:
        Tan et al. 2024, Section V.
    """
    return _total(event.steps, _channel_capacity(event))


def independent_uses(event: PrivacyEvent) -> int:
    """Looks with independent noise at the most used record: its uses for fresh noise, at most one for frozen noise."""
    _channel_capacity(event)
    return event.uses if event.noise == "fresh" else min(event.uses, 1)


def _total(count: int, nats: float) -> float:
    """The nats times the count; 0 for a count of 0, also of ∞."""
    return count * nats if count else 0.0


def _capacity(ratios: Float[np.ndarray, " d"], uses: float = 1.0) -> float:
    """½ Σ ln(1 + k ratio), ∞ if a ratio is infinite."""
    return math.inf if np.isposinf(ratios).any() else gaussian_capacity(ratios, 1.0, uses)


def _channel_capacity(event: PrivacyEvent) -> float:
    """κ of an event that the composition of channels was derived for."""
    if event.mechanism != "channel":
        raise ValueError(
            f"mechanism {event.mechanism!r}: this accountant composes data-space channels only; for DP-SGD and DP-PSAC "
            "use `accounting.epsilon` and `accounting.dp_capacity`; for all others no guarantee was derived"
        )
    if event.capacity is None or not event.capacity >= 0 or event.noise not in ("fresh", "frozen") or event.uses < 0:
        raise ValueError(
            f"capacity {event.capacity}, noise {event.noise!r}, uses {event.uses}: the event of a channel states a "
            "capacity >= 0, noise 'fresh' or 'frozen' and a count of uses; the file is incomplete, train anew"
        )
    return event.capacity
