"""Bounds that a run states, of one replica and of all together, and which of its releases they cover."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import Accountant, composed_epsilon, record_information
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.leakage import composed_leakage

PUBLISHED = ("weights", "learning rate", "channel")
"""Items that whoever receives a published replica learns something of."""


@dataclass(frozen=True)
class Release:
    """One thing that a job leaves.

    Attributes:
        item: Its name.
        covered: Whether the bound that the run states covers what it tells of a record.
        why: The reason, in a few words.
    """

    item: str
    covered: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TrainingFacts:
    """Facts of a run that decide what its bounds cover.

    Attributes:
        mechanism: Of its defense.
        bounded: Whether bounds are stated for its weights.
        clips: Whether a record's gradient is bounded, with its label.
        secure: Whether no seed repeats its noise; None if it draws none.
        replicas: Number of replicas.
        candidates: Learning rates that were tried.
        classes: Number of labels.
        covariance_of: Records that the channel was calibrated to, ``aux`` or ``members``; None without a
            channel.
        best_point: Whether weights of a point are kept that was chosen, in addition to those of the end.
        label_nats: Capacity of the randomized response to labels, nats; None if they are the true ones.
    """

    mechanism: str
    bounded: bool
    clips: bool
    secure: bool | None
    replicas: int
    candidates: int
    classes: int
    covariance_of: str | None
    best_point: bool = False
    label_nats: float | None = None


def stated_bounds(
    events: Sequence[PrivacyEvent],
    ratios: Float[np.ndarray, " d"] | None = None,
    delta: float | None = None,
    accountant: Accountant = "rdp",
    *,
    labels: float,
) -> dict[str, Any] | None:
    """Bounds for one network of a run, the one that tells most, and for all together; None where there is none.

    Args:
        events: Privacy event of each network: of every replica with every candidate learning rate.
        ratios: (d,) variance ratios of one use of the channel, if it has one.
        delta: δ of the defense, if it states one.
        accountant: Of ε.
        labels: Nats that a label reveals to whoever receives it without the bound covering it: ln of the
            number of classes, or the capacity of a randomized response.

    Returns:
        ``count`` of networks; ``labels``, nats that labels reveal on top; and for ``replica`` and ``replicas``
        plain values: those of :class:`~leakbound.accounting.leakage.ChannelLeakage` for a channel, of
        :func:`dp_bounds` for DP, and ``stated``, the same in words.
    """
    kinds = {event.bound for event in events}
    if kinds == {"nats"} and ratios is not None:
        worst = max(events, key=lambda event: event.uses)
        found = [_in_words(asdict(composed_leakage(group, ratios))) for group in ([worst], events)]
    elif kinds == {"epsilon"} and delta is not None:
        worst = max(events, key=lambda event: event.steps)
        found = [dp_bounds(group, delta, accountant) for group in ([worst], events)]
    else:
        return None
    if not all(math.isfinite(value) for one in found for value in one.values() if not isinstance(value, str)):
        return None
    extra = labels if kinds == {"nats"} else 0.0
    return {"count": len(events), "labels": extra, "replica": found[0], "replicas": found[1]}


def stated_leakage(
    event: PrivacyEvent, ratios: Float[np.ndarray, " d"] | None = None, delta: float | None = None
) -> float | None:
    """Nats that a network tells of one record after ``event``, at most; None where no bound holds.

    At the end of a training it is the ``record`` of :func:`stated_bounds`, before it what has been told so
    far.
    """
    if event.bound == "nats" and ratios is not None:
        nats = composed_leakage([event], ratios).record
    elif event.bound == "epsilon" and delta is not None:
        nats = record_information(event)  # ε takes seconds, too long for every point of a curve
    else:
        return None
    return nats if math.isfinite(nats) else None


def dp_bounds(events: Sequence[PrivacyEvent], delta: float, accountant: Accountant) -> dict[str, Any]:
    """Bounds of DP trainings together: ``epsilon``, ``delta``, ``accountant``, ``record`` (nats), ``stated`` (words).

    The nats are those of :func:`~leakbound.accounting.dp.record_information`.
    """
    epsilon, nats = composed_epsilon(events, delta, accountant), sum(map(record_information, events))
    return _in_words({"epsilon": epsilon, "delta": delta, "accountant": accountant, "record": nats})


def _in_words(found: dict[str, Any]) -> dict[str, Any]:
    """Bounds of one record with a text that states them."""
    nats = f"{found['record']:.4g} nats"
    private = f"ε = {found['epsilon']:.4g} at δ = {found['delta']:g} ({nats})" if "epsilon" in found else nats
    return {**found, "stated": private}


def training_releases(facts: TrainingFacts) -> Iterator[Release]:
    """All that a run leaves which was trained."""
    problems = [] if facts.bounded else [f"no bound was derived for {facts.mechanism!r} at this level"]
    if facts.bounded and not facts.secure:
        problems.append("noise from seeds, which whoever knows the seed subtracts: privacy_noise: secure")
    several = (
        f"{facts.replicas} replicas; together they tell what is stated for all, each what is stated for one"
    )
    yield Release("weights", not problems, "; ".join(problems) or several)
    if facts.best_point:
        yield Release("weights of the best point", False, "chosen among points by private validation records")
    if facts.bounded and not facts.clips:
        why = f"a channel leaves them clean: up to ln {facts.classes} nats on top per record"
        if facts.label_nats is not None:
            why = f"randomized responses: up to {facts.label_nats:.4g} nats on top per record"
        yield Release("labels", facts.label_nats is not None and bool(facts.secure), why)
    if facts.covariance_of is not None:
        from_members = facts.covariance_of != "aux"
        calibrated = "calibrated to mean and covariance of the members themselves: covariance: aux"
        yield Release(
            "channel",
            not from_members,
            calibrated if from_members else "calibrated to records that are nobody's",
        )
        yield Release("capacity under the members' law", False, "a statistic of the members")
    if facts.candidates > 1:
        nats = f"ln {facts.candidates} = {math.log(facts.candidates):.2g} nats"
        chosen = f"chosen among {facts.candidates} by private validation records, which may reveal {nats}"
        chosen += ": give one candidate"
        yield Release("learning rate", False, chosen)
    else:
        yield Release("learning rate", True, "given, not chosen")
    yield Release("candidate learning rates", False, "accuracies and losses of clean validation records")
    yield Release("curves, divergence", False, "losses and accuracies of clean members")
    yield Release(
        "privacy event", True, "follows from the settings alone; draws that are secret are not counted"
    )
    if facts.secure:
        yield Release("seeds", True, "they draw nothing that protects a record")
        yield Release("hashes of inputs", True, "keyed by a secret that does not leave")
    else:
        yield Release("seeds", False, "they repeat all noise")
        yield Release("hashes of inputs", False, "they single out the true records among candidates")
    yield Release("times", False, "nobody has bounded what the time of a step tells of its records")


def dataset_releases(secure: bool) -> list[Release]:
    """All that jobs leave which prepare a dataset and draw its figures."""
    hashed = (
        "keyed by a secret that does not leave" if secure else "singles out the true records among candidates"
    )
    return [
        Release("hash of prepared images", secure, hashed),
        Release("mean and covariance of members", False, "statistics of the members"),
        Release("pictures of members", False, "shown only if the reader says that they may be published"),
        Release("claims on pictures of members", False, "say how like noisy copies are to them, exactly"),
    ]


def estimator_releases(own: bool) -> list[Release]:
    """All that the learned estimate of a dataset leaves; ``own`` if its channels are made from the members' moments."""
    learned = "learned from the attacker's records, through channels"
    return [
        Release("estimator", not own, f"{learned} calibrated to the members' moments" if own else learned)
    ]


def attack_releases(targets: bool) -> list[Release]:
    """All that an attack leaves; its ``targets`` are single members where it looks at gradients."""
    pictures = (
        "targets and reconstructions of members" if targets else "what weights tell of classes of members"
    )
    return [
        Release("scores of attacks", False, "compare with clean members and name them"),
        Release("arrays of attacks", False, pictures),
    ]


def federated_releases(adapted: bool) -> list[Release]:
    """All that a federated run leaves; with ``adapted`` thresholds follow the norms of parameters."""
    norms = "follow norms that no budget covers" if adapted else "follow from the settings alone"
    return [
        Release("curves, divergence", False, "losses and accuracies of clean members"),
        Release("thresholds and leaks", not adapted, norms),
    ]


def refusals(releases: Sequence[Release], *, channel: bool) -> list[str]:
    """Reasons against publishing a replica, with its ``channel`` or without one: items that no bound covers."""
    listed = {one.item for one in releases}
    unsaid = [item for item in PUBLISHED if item not in listed and (channel or item != "channel")]
    return [
        *(f"{one.item}: {one.why}" for one in releases if one.item in PUBLISHED and not one.covered),
        *(f"{item}: the provenance does not say whether a bound covers it; train again" for item in unsaid),
    ]
