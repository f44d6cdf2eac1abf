"""Bounds of a training from its privacy events, of one network and of all, and their replay from a provenance."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import Accountant
from leakbound.accounting.leakage import PrivacyEvent, added_up, composed_leakage
from leakbound.accounting.statement import Statement, state

_GROUPS = ("replica", "replicas")
_RELEASES = {"replica": "the weights of one replica", "replicas": "the weights of all replicas together"}
_TOLERANCE = 1e-9


def run_statements(
    events: Sequence[PrivacyEvent],
    ratios: Float[np.ndarray, " d"] | None = None,
    delta: float | None = None,
    accountant: Accountant = "rdp",
    *,
    labels: float,
    secure: bool,
    uncovered: Sequence[str] = (),
) -> dict[str, Statement] | None:
    """State what the most leaking network of a run reveals, and what all reveal, None without a bound.

    A δ of 1 / number of records or more gives no bound, because publishing a random record meets it.

    Args:
        events: Privacy event of each network: of every replica with every candidate learning rate.
        ratios: (d,) variance ratios of one use of the channel, if it has one, alone or in front of DP.
        delta: δ of the defense, if it states one.
        accountant: Accountant of ε.
        labels: Nats that the released labels of a record or owner reveal where the bound does not cover them:
            ln of the number of classes for each, or the capacity of a randomized response.
        secure: Whether the noise is secret.
        uncovered: What of a published network the bound does not cover.

    Returns:
        Statements for ``replica`` and ``replicas``.
    """
    kinds = {event.bound for event in events}
    private = kinds == {"epsilon"} and delta is not None and delta * events[0].population < 1
    if not private and kinds != {"client"} and (kinds != {"nats"} or ratios is None):
        return None
    facts: dict[str, Any] = {"labels": labels, "secure": secure, "ratios": ratios, "uncovered": uncovered}
    facts |= {"delta": delta, "accountant": accountant} if private else {}
    statements = {of: state(_RELEASES[of], events=group, **facts) for of, group in _groups(events).items()}
    finite = all(
        math.isfinite(statement.nats) and math.isfinite(statement.epsilon or 0.0)
        for statement in statements.values()
    )
    return statements if finite else None


def without_bound(why_not: str, *, secure: bool, uncovered: Sequence[str] = ()) -> dict[str, Statement]:
    """State for ``replica`` and ``replicas`` that there is no bound, and why."""
    facts: dict[str, Any] = {"labels": "uncounted", "secure": secure, "uncovered": uncovered}
    return {of: state(release, why_not=why_not, **facts) for of, release in _RELEASES.items()}


def stated_bounds(
    events: Sequence[PrivacyEvent],
    ratios: Float[np.ndarray, " d"] | None = None,
    delta: float | None = None,
    accountant: Accountant = "rdp",
    *,
    labels: float,
) -> dict[str, Any] | None:
    """Compute the numbers of :func:`run_statements` if the noise is secret, None without a bound on a record.

    Returns:
        ``count`` of networks, ``labels``, the nats that labels reveal in addition, and plain values for
        ``replica`` and ``replicas``: those of :class:`~leakbound.accounting.leakage.ChannelLeakage` for a
        channel, and for DP ``epsilon``, ``delta``, ``accountant`` and the nats of
        :func:`~leakbound.accounting.dp.private_nats`.
    """
    statements = run_statements(events, ratios, delta, accountant, labels=labels, secure=True)
    if statements is None or statements["replica"].unit == "client":
        return None
    bounds: dict[str, Any] = {}
    for of, group in _groups(events).items():
        statement = statements[of]
        if statement.epsilon is None and ratios is not None:
            bounds[of] = asdict(composed_leakage(group, ratios))
        else:
            budget = {
                "epsilon": statement.epsilon,
                "delta": statement.delta,
                "accountant": statement.accountant,
            }
            bounds[of] = {**budget, "record": statement.values, **statement.parts}
    numbers = [value for group in bounds.values() for value in group.values() if not isinstance(value, str)]
    if not all(map(math.isfinite, numbers)):
        return None
    return {"count": len(events), "labels": statements["replica"].labels, **bounds}


def _groups(events: Sequence[PrivacyEvent]) -> dict[str, list[PrivacyEvent]]:
    """Return the event of the network that leaks most, and those of all networks."""
    worst = max(events, key=lambda event: event.uses if event.bound == "nats" else event.steps)
    return {"replica": [worst], "replicas": [*events]}


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
    stated = record.get("leakage")
    entries = record.get("events")
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
    classes = round(math.exp(stated["labels"]))
    channel = events[0].bound == "nats"
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
