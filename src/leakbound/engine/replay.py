"""Bounds of a finished training, recomputed from the privacy events of its provenance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.leakage import added_up
from leakbound.accounting.statement import stated_bounds

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Replay:
    """Bounds for one record, of one network or of all that were trained on it, in nats unless named otherwise.

    Attributes:
        of: ``replica``, the network that tells most, or ``replicas``, all of them.
        networks: Number of networks, candidates that nobody kept included.
        uses: Most uses of a record.
        joint: By added precisions; for DP by the composed Gaussian mechanism.
        labels: On top, released without noise.
        record: The smallest valid bound.
        verified: Whether the numbers were recomputed, and not only compared with each other.
        looks: Looks with independent noise at a record; None for DP.
        printed: n·κ, as published; None for DP.
        linear: k·κ; None for DP.
        epsilon: ε of DP; None for channels.
        delta: δ of DP.
    """

    of: str
    networks: int
    uses: int
    joint: float
    labels: float
    record: float
    verified: bool
    looks: int | None = None
    printed: float | None = None
    linear: float | None = None
    epsilon: float | None = None
    delta: float | None = None


def replay(record: Mapping[str, Any], ratios: Float[np.ndarray, " d"] | None = None) -> list[Replay]:
    """Bounds of a training from its provenance, recomputed where that is possible.

    A DP training's are always. A channel's need the variance ratios of one use; without them the printed and
    the added-up totals are computed, and the stated joint bound is compared with both.

    Args:
        record: Provenance of a training.
        ratios: (d,), of its channel (:func:`leakbound.channels.signal_to_noise`).

    Raises:
        ValueError: If the record is of no training, of one without a bound, or states other numbers than its
            events and channel give.
    """
    try:
        return _replayed(record, ratios)
    except (
        ArithmeticError,
        AttributeError,
        KeyError,
        TypeError,
    ) as error:  # values of other types than were written
        raise ValueError("the provenance holds events or bounds of another form: train again") from error


def _replayed(record: Mapping[str, Any], ratios: Float[np.ndarray, " d"] | None) -> list[Replay]:
    """Bounds of a record whose values have their types."""
    stated, events = _read(record)
    told = {name: stated[name] for name in ("replica", "replicas")}
    kind, channel = events[0].bound, events[0].bound == "nats"
    verified = not channel or ratios is not None
    if verified:
        options = {} if channel else {name: told["replica"][name] for name in ("delta", "accountant")}
        found = stated_bounds(events, ratios if channel else None, **options, labels=stated["labels"])
        if found is None or not all(_agree(found[name]["record"], told[name]["record"]) for name in told):
            given = "its channel give" if channel else f"its {kind} gives"
            raise ValueError(f"the provenance states other bounds than its events and {given}: train again")
    worst = max(events, key=lambda event: event.uses if channel else event.steps)
    return [
        _one(name, [worst] if name == "replica" else events, told[name]["record"], stated, verified)
        for name in told
    ]


def _one(
    of: str, events: list[PrivacyEvent], joint: float, stated: Mapping[str, Any], verified: bool
) -> Replay:
    """Numbers of some networks together."""
    facts, labels = stated[of], stated["labels"]
    count, uses = len(events), sum(event.uses for event in events)
    if events[0].bound != "nats":
        dp = {"epsilon": facts["epsilon"], "delta": facts["delta"]}
        return Replay(of, count, uses, joint, labels, joint + labels, verified, **dp)
    seen, printed, linear = added_up(events)
    if not joint <= linear * (1.0 + _TOLERANCE):
        raise ValueError(
            f"the provenance states {joint:g} nats for {seen} looks of {events[0].capacity or 0.0:g}: train again"
        )
    bound = min(linear, joint) + labels
    return Replay(of, count, uses, joint, labels, bound, verified, seen, printed, linear)


def _read(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[PrivacyEvent]]:
    """Stated bounds and events of a provenance."""
    stated, given = record.get("leakage"), record.get("events")
    if not isinstance(given, list) or not given:
        raise ValueError(
            "the provenance holds no privacy events, so it is of no training: give that of a training"
        )
    events = [PrivacyEvent(**event) for event in given]
    if stated is None:
        raise ValueError(
            f"no bound was derived for {events[0].mechanism!r} at this level, so there is nothing to account for: "
            "name a training behind a channel, DP-SGD or DP-PSAC"
        )
    needed = {"replica", "replicas", "labels"}
    if (
        not isinstance(stated, dict)
        or not needed <= stated.keys()
        or len({event.bound for event in events}) != 1
    ):
        raise ValueError("the provenance states bounds of another form: give that of a training")
    classes, channel = round(math.exp(stated["labels"])), events[0].bound == "nats"
    whole = (classes > 1) == channel and _agree(math.log(classes), stated["labels"])
    if not whole and not (channel and stated["labels"] > 0 and _responded(record)):
        labels = "ln of the number of classes, of 2 or more" if channel else "0, as DP covers them"
        raise ValueError(
            f"the provenance states {stated['labels']:g} nats for labels; they are {labels}: train again"
        )
    return stated, events


def _responded(record: Mapping[str, Any]) -> bool:
    """True if a provenance says that labels are randomized responses, whose nats nothing else in it can check."""
    items = record.get("released", ())
    return any(item["item"] == "labels" and item["why"].startswith("randomized responses") for item in items)


def _agree(one: float, other: float) -> bool:
    """True of numbers that differ by rounding alone."""
    return math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
