"""Bounds that a run states, of one replica and of all together, and which of its releases they cover."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import Accountant, composed_epsilon, record_information
from leakbound.accounting.leakage import PrivacyEvent, added_up, composed_leakage

_GROUPS = ("replica", "replicas")
_TOLERANCE = 1e-9
# Items that reveal something to the recipient of a published replica.
PUBLISHED = ("weights", "learning rate", "channel")


@dataclass(frozen=True, order=True)
class ReleasedItem:
    """Item that a job releases.

    Attributes:
        item: Its name.
        covered: Whether the bound that the run states covers what the item reveals about a record.
        why: The reason, in a few words.
    """

    item: str
    covered: bool
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)


def stated_bounds(
    events: Sequence[PrivacyEvent],
    ratios: Float[np.ndarray, " d"] | None = None,
    delta: float | None = None,
    accountant: Accountant = "rdp",
    *,
    labels: float,
) -> dict[str, Any] | None:
    """Bound what the most leaking network of a run reveals, and what all reveal, None without a bound.

    A δ of 1 / number of records or more gives no bound, because publishing a random record meets it.

    Args:
        events: Privacy event of each network: of every replica with every candidate learning rate.
        ratios: (d,) variance ratios of one use of the channel, if it has one, alone or in front of DP.
        delta: δ of the defense, if it states one.
        accountant: Accountant of ε.
        labels: Nats that a released label reveals where the bound does not cover it: ln of the number of
            classes, or the capacity of a randomized response.

    Returns:
        ``count`` of networks, ``labels``, the nats that labels reveal in addition, and plain values for
        ``replica`` and ``replicas``: those of :class:`~leakbound.accounting.leakage.ChannelLeakage` for a
        channel, of :func:`dp_bounds` for DP, and ``stated``, the same in words.
    """
    kinds = {event.bound for event in events}
    if kinds == {"nats"} and ratios is not None:
        bounds = {
            of: _in_words(asdict(composed_leakage(group, ratios))) for of, group in _groups(events).items()
        }
    elif kinds == {"epsilon"} and delta is not None and delta * events[0].population < 1:
        behind = (ratios, labels)
        bounds = {of: dp_bounds(group, delta, accountant, *behind) for of, group in _groups(events).items()}
    else:
        return None
    values = [value for group in bounds.values() for value in group.values() if not isinstance(value, str)]
    if not all(map(math.isfinite, values)):
        return None
    return {"count": len(events), "labels": labels if kinds == {"nats"} else 0.0, **bounds}


def _groups(events: Sequence[PrivacyEvent]) -> dict[str, list[PrivacyEvent]]:
    """Return the event of the network that leaks most, and those of all networks."""
    worst = max(events, key=lambda event: event.uses if event.bound == "nats" else event.steps)
    return {"replica": [worst], "replicas": [*events]}


def dp_bounds(
    events: Sequence[PrivacyEvent],
    delta: float,
    accountant: Accountant,
    ratios: Float[np.ndarray, " d"] | None = None,
    labels: float = 0.0,
) -> dict[str, Any]:
    """Bound DP trainings together: ``epsilon``, ``delta``, ``accountant``, nats, ``stated``.

    Nats are those of :func:`private_nats`, and ``stated`` says it in words.
    """
    epsilon = composed_epsilon(events, delta, accountant)
    nats = private_nats(events, ratios, labels)
    return _in_words({"epsilon": epsilon, "delta": delta, "accountant": accountant, **nats})


def private_nats(
    events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"] | None, labels: float
) -> dict[str, float]:
    """Bound the nats of DP trainings together about one record, ``record``, also behind a channel.

    The nats of DP are those of :func:`~leakbound.accounting.dp.record_information`. Behind a channel they are
    ``gradients``, what the noisy sums reveal. All is computed from images that the channel released, which
    reveal ``images`` nats, and from labels, so that ``images`` and ``labels`` together are a bound, too, by
    data processing. Each holds on its own, and ``record`` is the tighter one.

    Args:
        events: Privacy event of each training.
        ratios: (d,) variance ratios of one use of the channel in front, None without one.
        labels: Nats that labels reveal.
    """
    gradients = sum(map(record_information, events))
    images = math.inf if ratios is None else composed_leakage(events, ratios).record
    if images == math.inf:
        return {"record": gradients}
    nats = {"gradients": gradients, "images": images, "labels": labels}
    return {"record": min(gradients, images + labels), **nats}


def _in_words(bounds: dict[str, Any]) -> dict[str, Any]:
    """Add a text that states the bounds of one record."""
    nats = f"{bounds['record']:.4g} nats"
    if "images" in bounds:
        nats += f"; its channel lets {bounds['images']:.4g} of an image through"
    private = (
        f"ε = {bounds['epsilon']:.4g} at δ = {bounds['delta']:g} ({nats})" if "epsilon" in bounds else nats
    )
    return {**bounds, "stated": private}


def replay(record: Mapping[str, Any], ratios: Float[np.ndarray, " d"] | None = None) -> list[dict[str, Any]]:
    """Recompute the bounds of a training from its provenance, as far as possible.

    A DP training without a channel needs nothing else. Behind a channel the variance ratios of one use are
    needed. Without them only the totals that add uses up are computed, and the stated joint bound is compared
    with them.

    Args:
        record: Provenance of a training.
        ratios: (d,), variance ratios of its channel (:func:`leakbound.channels.signal_to_noise`).

    Returns:
        Plain values for one record, in nats if not stated otherwise: ``of`` (``replica``, the network that
        leaks most, or ``replicas``, all of them), ``networks`` (their number), ``uses`` (most of a record),
        ``joint`` (by added precisions, or for DP by the composed Gaussian mechanism), ``labels`` (in addition,
        as they are released without noise), ``record`` (the smallest valid bound), ``verified`` (whether the
        numbers were recomputed, and not only compared with each other), for channels ``fresh_uses`` (uses with
        independent noise), ``printed`` (n·κ, as published) and ``linear`` (k·κ), for DP ``epsilon`` and
        ``delta``, and behind a channel ``gradients`` and ``images`` of :func:`private_nats`. What does not
        apply is None.

    Raises:
        ValueError: If the record is of no training, of one without a bound, or states other numbers than its
            events and channel give.
    """
    try:
        stated, events = _read(record)
        alone = events[0].bound == "nats"
        behind = "images" in stated["replica"]
        channel = alone or behind
        verified = not channel or ratios is not None
        if verified:
            budget = {} if alone else {name: stated["replica"][name] for name in ("delta", "accountant")}
            labels = stated["replica"]["labels"] if behind else stated["labels"]
            bounds = stated_bounds(events, ratios if channel else None, **budget, labels=labels)
            if bounds is None or not all(_same(bounds[of], stated[of]) for of in _GROUPS):
                source = "its channel give" if channel else f"its {events[0].bound} gives"
                raise ValueError(
                    f"the provenance states other bounds than its events and {source}: train again"
                )
        return [_row(of, group, stated, verified) for of, group in _groups(events).items()]
    # Values of other types than were written.
    except (ArithmeticError, AttributeError, KeyError, TypeError) as error:
        raise ValueError("the provenance holds events or bounds of another form: train again") from error


def _row(of: str, events: list[PrivacyEvent], stated: Mapping[str, Any], verified: bool) -> dict[str, Any]:
    """Collect the numbers of networks together."""
    joint = stated[of]["record"]
    fresh_uses = printed = linear = None
    bound = joint
    if events[0].bound == "nats":
        fresh_uses, printed, linear = added_up(events)
        bound = min(linear, joint)
        if not joint <= linear * (1.0 + _TOLERANCE):
            raise ValueError(
                f"the provenance states {joint:g} nats for {fresh_uses} uses that allow {linear:g}: train again"
            )
    return {
        "of": of,
        "networks": len(events),
        "uses": sum(event.uses for event in events),
        "joint": joint,
        "labels": stated["labels"],
        "record": bound + stated["labels"],
        "verified": verified,
        "fresh_uses": fresh_uses,
        "printed": printed,
        "linear": linear,
        **{name: stated[of].get(name) for name in ("epsilon", "delta", "gradients", "images")},
    }


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
    if len({event.bound for event in events}) != 1:
        raise ValueError("the provenance states bounds of another form: give that of a training")
    classes, channel = round(math.exp(stated["labels"])), events[0].bound == "nats"
    whole = (classes > 1) == channel and _agree(math.log(classes), stated["labels"])
    # The nats of randomized responses cannot be checked by anything else in a provenance.
    responded = any(item["why"].startswith("randomized responses") for item in record.get("released", ()))
    if not whole and not (channel and stated["labels"] > 0 and responded):
        labels = "ln of the number of classes, of 2 or more" if channel else "0, as DP covers them"
        raise ValueError(
            f"the provenance states {stated['labels']:g} nats for labels; they are {labels}: train again"
        )
    return stated, events


def _same(bounds: Mapping[str, Any], stated: Mapping[str, Any]) -> bool:
    """Return whether all numbers of some bounds are stated."""
    return all(
        _agree(value, stated[name]) for name, value in bounds.items() if isinstance(value, int | float)
    )


def _agree(value: int | float, other: int | float) -> bool:
    """Return whether two numbers differ by rounding alone."""
    return math.isclose(value, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def dataset_releases(secure: bool) -> list[ReleasedItem]:
    """List what the jobs that prepare a dataset and draw its figures release."""
    hashed = (
        "keyed by a secret that does not leave" if secure else "singles out the true records among candidates"
    )
    return [
        ReleasedItem("hash of prepared images", secure, hashed),
        ReleasedItem("mean and covariance of members", False, "statistics of the members"),
        ReleasedItem(
            "pictures of members", False, "shown only if the reader says that they may be published"
        ),
        ReleasedItem(
            "claims on pictures of members", False, "say how like noisy copies are to them, exactly"
        ),
    ]


def estimator_releases(from_members: bool) -> list[ReleasedItem]:
    """List what the learned estimate of a dataset releases.

    Args:
        from_members: Whether channels use the members' moments.
    """
    why = "learned from the attacker's records, through channels"
    if from_members:
        why += " calibrated to the members' moments"
    return [ReleasedItem("estimator", not from_members, why)]


def attack_releases(targets: bool) -> list[ReleasedItem]:
    """List what an attack releases. Its ``targets`` are single members where it inverts gradients."""
    pictures = (
        "targets and reconstructions of members" if targets else "what weights tell of classes of members"
    )
    return [
        ReleasedItem("scores of attacks", False, "compare with clean members and name them"),
        ReleasedItem("arrays of attacks", False, pictures),
    ]


def federated_releases(adapted: bool) -> list[ReleasedItem]:
    """List what a federated run releases. With ``adapted`` thresholds follow the norms of parameters."""
    norms = "follow norms that no budget covers" if adapted else "follow from the settings alone"
    return [
        ReleasedItem("curves, divergence", False, "losses and accuracies of clean members"),
        ReleasedItem("thresholds and leaks", not adapted, norms),
    ]


def refusals(releases: Sequence[ReleasedItem], *, channel: bool) -> list[str]:
    """List why a replica may not be published, with or without ``channel``: items that no bound covers."""
    listed = {release.item for release in releases}
    unsaid = [item for item in PUBLISHED if item not in listed and (channel or item != "channel")]
    uncovered = [release for release in releases if release.item in PUBLISHED and not release.covered]
    return [
        *(f"{release.item}: {release.why}" for release in uncovered),
        *(f"{item}: the provenance does not say whether a bound covers it; train again" for item in unsaid),
    ]
