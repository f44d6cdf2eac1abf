"""Statement of a training for its provenance: its bounds, and which of its releases they cover."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import record_information
from leakbound.accounting.event import PrivacyEvent
from leakbound.accounting.leakage import composed_leakage
from leakbound.accounting.statement import TrainingFacts, stated_bounds, training_releases
from leakbound.channels.channel import Spectrum, signal_to_noise
from leakbound.training.request import TrainingRequest


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
            nats = record_information(event)  # ε takes seconds, too long for every point of a curve
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
        ``leakage``, as :func:`leakbound.accounting.statement.stated_bounds` gives it, and ``released``, plain
        values of :class:`leakbound.accounting.statement.ReleasedItem`.
    """
    defense = request.defense
    ratios = _ratios(request, spectrum)
    classes = len(request.dataset.classes)
    nats = request.dataset.label_nats
    labels = math.log(classes) if nats is None else nats
    bounds = stated_bounds(events, ratios, **defense.budget, labels=labels)
    facts = TrainingFacts(
        mechanism=defense.mechanism,
        bounded=bounds is not None,
        clips=defense.clips,
        secure=request.privacy_noise == "secure" if defense.draws_noise else None,
        replicas=request.replicas,
        candidates=len(request.candidates),
        classes=classes,
        label_nats=nats,
        covariance_of=covariance_of,
        best_point="best" in request.lengths,
    )
    return {"leakage": bounds, "released": [release.to_dict() for release in training_releases(facts)]}


def _ratios(request: TrainingRequest, spectrum: Spectrum | None) -> Float[np.ndarray, " d"] | None:
    """Compute the variance ratios of one use of the run's channel, if it has one."""
    channel = request.channel
    return None if channel is None or spectrum is None else signal_to_noise(channel, spectrum)
