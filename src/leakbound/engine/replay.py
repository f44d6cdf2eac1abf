"""Bounds of a finished training, recomputed from the privacy events of its provenance."""

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
    """Bounds for one record, of one network or of all that trained on it, in nats if not stated otherwise.

    Attributes:
        of: ``replica``, the network that leaks most, or ``replicas``, all of them.
        networks: Number of networks, candidates that nobody kept included.
        uses: Most uses of a record.
        joint: By added precisions, or for DP by the composed Gaussian mechanism.
        labels: In addition, for labels that are released without noise.
        record: The smallest valid bound.
        verified: Whether the numbers were recomputed, and not only compared with each other.
        looks: Uses of a record with independent noise, None for DP.
        printed: n·κ, as published, None for DP.
        linear: k·κ, None for DP.
        epsilon: ε of DP, None for channels.
        delta: δ of DP, None for channels.
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
    """Recompute the bounds of a training from its provenance, where that is possible.

    It is always possible for a DP training. For a channel it takes the variance ratios of one use. Without
    them the printed and the added-up totals are computed, and the stated joint bound is compared with both.

    Args:
        record: Provenance of a training.
        ratios: (d,), variance ratios of its channel (:func:`leakbound.channels.signal_to_noise`).

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
    ) as error:  # of other types than were written
        raise ValueError("the provenance holds events or bounds of another form: train again") from error


def _replayed(record: Mapping[str, Any], ratios: Float[np.ndarray, " d"] | None) -> list[Replay]:
    """Recompute the bounds of a record whose values have their types."""
    stated, events = _read(record)
    groups = ("replica", "replicas")
    channel = events[0].bound == "nats"
    verified = not channel or ratios is not None
    if verified:
        options = {} if channel else {name: stated["replica"][name] for name in ("delta", "accountant")}
        bounds = stated_bounds(events, ratios if channel else None, **options, labels=stated["labels"])
        if bounds is None or not all(_agree(bounds[of]["record"], stated[of]["record"]) for of in groups):
            source = "its channel give" if channel else f"its {events[0].bound} gives"
            raise ValueError(f"the provenance states other bounds than its events and {source}: train again")
    worst = max(events, key=lambda event: event.uses if channel else event.steps)
    return [
        _replay_of("replica", [worst], stated, verified),
        _replay_of("replicas", events, stated, verified),
    ]


def _replay_of(of: str, events: list[PrivacyEvent], stated: Mapping[str, Any], verified: bool) -> Replay:
    """Collect the numbers of networks together."""
    facts = stated[of]
    joint = facts["record"]
    labels, count, uses = stated["labels"], len(events), sum(event.uses for event in events)
    if events[0].bound != "nats":
        dp = {"epsilon": facts["epsilon"], "delta": facts["delta"]}
        return Replay(of, count, uses, joint, labels, joint + labels, verified, **dp)
    seen, printed, linear = added_up(events)
    if not joint <= linear * (1.0 + _TOLERANCE):
        raise ValueError(
            f"the provenance states {joint:g} nats for {seen} uses of {events[0].capacity or 0.0:g}: train again"
        )
    bound = min(linear, joint) + labels
    return Replay(of, count, uses, joint, labels, bound, verified, seen, printed, linear)


def _read(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[PrivacyEvent]]:
    """Read the stated bounds and the events of a provenance."""
    stated, entries = record.get("leakage"), record.get("events")
    if not isinstance(entries, list) or not entries:
        raise ValueError(
            "the provenance holds no privacy events, so it is of no training: give that of a training"
        )
    events = [PrivacyEvent(**entry) for entry in entries]
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
    """Return whether labels are randomized responses, whose nats nothing else in a provenance can check."""
    items = record.get("released", ())
    return any(item["item"] == "labels" and item["why"].startswith("randomized responses") for item in items)


def _agree(value: float, other: float) -> bool:
    """Return whether two numbers differ by rounding alone."""
    return math.isclose(value, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
