"""Statement of a training for its provenance: its bounds, and which of its releases they cover."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import private_nats
from leakbound.accounting.leakage import CLIENT_MECHANISMS, PrivacyEvent, composed_leakage
from leakbound.accounting.releases import PUBLISHED, ReleasedItem
from leakbound.accounting.runs import run_statements, stated_bounds, without_bound
from leakbound.channels.channel import Spectrum, signal_to_noise
from leakbound_lab.training.request import TrainingRequest


def leakage_so_far(
    request: TrainingRequest, spectrum: Spectrum | None
) -> Callable[[PrivacyEvent], float | None]:
    """Return the function from an event to the nats that a network has revealed about one record so far.

    At the end of the training it returns the value of :func:`statement`. It returns None if no bound holds.

    Args:
        request: The run.
        spectrum: Spectrum that its channel was calibrated from, or None without a channel.
    """
    ratios = _ratios(request, spectrum)

    def so_far(event: PrivacyEvent) -> float | None:
        nats = math.inf
        if event.bound == "nats" and ratios is not None:
            nats = composed_leakage([event], ratios).record
        elif event.bound == "epsilon" and "delta" in request.defense.budget:
            # ε takes seconds, too long for every point of a curve.
            nats = private_nats([event], ratios, _label_nats(request))["record"]
        return nats if math.isfinite(nats) else None

    return so_far


def statement(
    request: TrainingRequest,
    events: Sequence[PrivacyEvent],
    spectrum: Spectrum | None,
    covariance_of: str | None,
) -> dict[str, Any]:
    """Return bounds for one network and for all of them, and the list of releases of the run.

    Args:
        request: The run.
        events: Privacy event of each slot, including candidates that are not kept, because they have used the
            records, too.
        spectrum: Spectrum that its channel was calibrated from, or None without a channel.
        covariance_of: Records that its channel was calibrated to, ``aux`` or ``members``, or None without a
            channel.

    Returns:
        ``leakage``, the numbers of :func:`leakbound.accounting.runs.stated_bounds`, ``statement``, for
        ``replica`` and ``replicas`` those of :class:`leakbound.accounting.statement.Statement`, and ``released``,
        plain values of :class:`leakbound.accounting.releases.ReleasedItem`.
    """
    ratios = _ratios(request, spectrum)
    budget = {**request.defense.budget, "labels": _label_nats(request)}
    most = request.dataset.most.rows
    counted = all(event.rows >= most for event in events)  # trainers from outside may count by index
    bounds = stated_bounds(events, ratios, **budget) if counted else None
    releases = [*training_releases(request, bounds is not None, covariance_of)]
    published = set(PUBLISHED) - {"weights"}
    facts: dict[str, Any] = {
        "secure": _secure(request),
        "uncovered": [
            release.item for release in releases if release.item in published and not release.covered
        ],
    }
    derived = counted and (bounds is not None or {event.bound for event in events} == {"client"})
    statements = run_statements(events, ratios, **budget, **facts) if derived else None
    statements = statements or without_bound(_underived(request), **facts)
    return {
        "leakage": bounds,
        "statement": {of: each.numbers() for of, each in statements.items()},
        "released": [release.to_dict() for release in releases],
    }


def training_releases(
    request: TrainingRequest, bounded: bool, covariance_of: str | None
) -> Iterator[ReleasedItem]:
    """List what a training releases.

    Args:
        request: The run.
        bounded: Whether bounds are stated for its weights.
        covariance_of: As in :func:`statement`.
    """
    defense = request.defense
    label_nats = request.dataset.label_nats
    candidates = len(request.candidates)
    secure = _secure(request)
    problems = [] if bounded else [_underived(request)]
    if bounded and not secure:
        problems.append("noise from seeds, which whoever knows the seed subtracts: privacy_noise: secure")
    several = (
        f"{request.replicas} replicas; together they tell what is stated for all, each what is stated for one"
    )
    yield ReleasedItem("weights", not problems, "; ".join(problems) or several)
    if "best" in request.lengths:
        yield ReleasedItem(
            "weights of the best point", False, "chosen among points by private validation records"
        )
    if bounded and not defense.clips:
        on_top = f"nats on top per {request.dataset.unit}"
        several = f"{most} · " if (most := request.dataset.most.labels) > 1 else ""
        why = f"a channel leaves them clean: up to {several}ln {len(request.dataset.classes)} {on_top}"
        if label_nats is not None:
            why = f"randomized responses: up to {several}{label_nats:.4g} {on_top}"
        yield ReleasedItem("labels", label_nats is not None and secure, why)
    if covariance_of is not None:
        why = "calibrated to records that are nobody's"
        if covariance_of != "aux":
            why = "calibrated to mean and covariance of the members themselves: covariance: aux"
        yield ReleasedItem("channel", covariance_of == "aux", why)
        yield ReleasedItem("capacity under the members' law", False, "a statistic of the members")
    why = "given, not chosen"
    if candidates > 1:
        nats = f"ln {candidates} = {math.log(candidates):.2g} nats"
        why = f"chosen among {candidates} by private validation records, which may reveal {nats}: give one candidate"
    yield ReleasedItem("learning rate", candidates == 1, why)
    yield ReleasedItem("candidate learning rates", False, "accuracies and losses of clean validation records")
    yield ReleasedItem("curves, divergence", False, "losses and accuracies of clean members")
    yield ReleasedItem(
        "privacy event", True, "follows from the settings alone; draws that are secret are not counted"
    )
    if secure:
        yield ReleasedItem("seeds", True, "they draw nothing that protects a record")
        yield ReleasedItem("hashes of inputs", True, "keyed by a secret that does not leave")
    else:
        yield ReleasedItem("seeds", False, "they repeat all noise")
        yield ReleasedItem("hashes of inputs", False, "they single out the true records among candidates")
    yield ReleasedItem("times", False, "nobody has bounded what the time of a step tells of its records")


def _secure(request: TrainingRequest) -> bool:
    """Return whether the run draws noise, all of it secret."""
    return request.privacy_noise == "secure" and request.defense.draws_noise


def _underived(request: TrainingRequest) -> str:
    """Say why a run has no bound on a record."""
    if request.defense.mechanism in CLIENT_MECHANISMS:
        return f"{request.defense.mechanism!r} bounds all records of the client together, and no single one"
    return f"no bound was derived for {request.defense.mechanism!r} at this level"


def _label_nats(request: TrainingRequest) -> float:
    """Return the nats that the labels of a unit reveal: of randomized responses, or ln of the number of classes."""
    nats = request.dataset.label_nats
    of_one = math.log(len(request.dataset.classes)) if nats is None else nats
    return of_one * request.dataset.most.labels


def _ratios(request: TrainingRequest, spectrum: Spectrum | None) -> Float[np.ndarray, " d"] | None:
    """Compute the variance ratios of one use of the run's channel, if it has one."""
    channel = request.channel
    return None if channel is None or spectrum is None else signal_to_noise(channel, spectrum)
