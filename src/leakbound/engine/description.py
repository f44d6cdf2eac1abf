"""The guarantee of an engine in words, and the assumptions that it rests on."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leakbound.accounting.naming import naming_bound
from leakbound.channels.observed import OwnCapacity
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.engine.label_count import LabelCount
from leakbound.engine.noise import name_of
from leakbound.engine.records import Layout
from leakbound.engine.targets import Calibration, Target

AVERAGE = "on average over records like the calibration's"
_ROUNDING = 1e-9  # relative, of nats that are compared
_CANDIDATES = 1000
_VERSION = 3


@dataclass(frozen=True)
class Guarantee:
    """Facts of an engine that decide what it guarantees. As text: these and what is assumed, one a line.

    Attributes:
        calibration: The channel, with the moments that it was calibrated to.
        target: Limit that it meets.
        noise: ``fresh`` or ``frozen``.
        secure: Whether no seed repeats the noise.
        layout: Form of an input.
        labels: Labels, as they are counted and released.
        own_capacity: Capacity by the moments of the private records. None before some were read.
        calibrated_to_own: Whether the channel may be a statistic of the records that it protects.
        ledger: File that counts for all runs. None without one.
        uncounted: Places of a record that are released without noise and not counted.
        nats: Bounds the nats of a number of uses, as they are counted.
    """

    calibration: Calibration
    target: Target
    noise: str
    secure: bool
    layout: Layout
    labels: LabelCount
    own_capacity: OwnCapacity | None
    calibrated_to_own: bool
    ledger: Path | None
    uncounted: Sequence[str | int]
    nats: Callable[[float], float]

    def __str__(self) -> str:
        assumed = [f"  - {assumption}" for assumption in _assumptions(self)]
        return "\n".join([*_guaranteed(self), "", "Assumed, and not checked in full:", *assumed])


def law(
    calibration: Calibration,
    layout: Layout,
    noise: str,
    seed: int | None,
    response: RandomizedResponse | None = None,
) -> dict[str, Any]:
    """List the facts that a state and an engine must share."""
    facts = {
        "version": _VERSION,
        "shape": calibration.channel.shape,
        "nats": float(calibration.information(1)),
        "power": calibration.channel.noise_power,
        "noise": noise,
        "seed": seed,
        "inputs": list(layout.shape),
    }
    if seed is not None:
        facts["draws"] = name_of(seed, calibration.channel)
    return facts if response is None else facts | {"labels": asdict(response)}


def _guaranteed(facts: Guarantee) -> Iterator[str]:
    """List the facts that hold."""
    calibration, target = facts.calibration, facts.target
    frozen = facts.noise == "frozen"
    looks = 1 if frozen or target.uses is None else target.uses
    std = np.sqrt(calibration.channel.noise_power / calibration.channel.dimension)
    one_use, together = facts.nats(1), facts.nats(looks)
    yield f"{target} by {calibration.channel.shape} noise, {facts.noise}, {'secure' if facts.secure else 'seeded'}"
    yield f"inputs of shape {facts.layout.shape}, values from {facts.layout.low:g} to {facts.layout.high:g}"
    yield f"noise of standard deviation {std:.4g} per value (root mean square), in the units of the data"
    yield f"one use reveals at most {one_use:.6g} nats of a record, {AVERAGE}"
    if frozen:
        planned = "all uses of the one noisy copy"
    elif target.uses is None:
        planned = "one use (their number is not limited: see engine.leakage())"
    else:
        planned = f"{looks} uses"
        yield (
            f"{looks} uses reveal at most {together:.6g} nats together ({looks * one_use:.6g} if added up), {AVERAGE}"
        )
    if together > calibration.information(looks) * (1.0 + _ROUNDING):
        yield f"these are the nats that accept_capacity accepts; calibrated were {calibration.information(looks):.6g}"
    if (private := facts.own_capacity) is not None and private.records > 1:
        yield (
            f"{private.rounded:g} nats by the moments of the private records ({private.records} of them were "
            "compared): a statistic of these, so keep it to yourself"
        )
    error, blind = calibration.linear_error(looks), calibration.linear_error(0)
    yield f"after {planned}, {AVERAGE}:"
    yield f"  the best linear estimate errs by {error:.4g} squared per value; guessing the mean errs by {blind:.4g}"
    success = naming_bound(together, _CANDIDATES) if math.isfinite(together) else 1.0
    yield f"  one of {_CANDIDATES} equally likely records is identified with a probability of at most {success:.4g}"


def _assumptions(facts: Guarantee) -> Iterator[str]:
    """List the conditions that the facts rest on."""
    moments = facts.calibration.moments
    shrunk = f", shrunk by {moments.shrinkage:.2g}" if moments.shrinkage else ""
    yield (
        f"private records have the covariance of the {moments.count} calibration records{shrunk}; compared are some "
        "of them, on average; whatever their distribution, nats and identification then hold for every attacker"
    )
    yield (
        "no bound is about one unusual record: an input far from the calibration's, such as the negative of a picture, "
        "reveals more than the average"
    )
    yield (
        "the squared error is the least for Gaussian records alone; of images, an estimate that is not linear can err "
        "less"
    )
    if facts.calibrated_to_own:
        yield "the channel is a statistic of the records that it protects: what it reveals of them is not counted"
    yield (
        "a record is its values: equal ones at several indices are one record, and a cropped, scaled or augmented "
        "version of it counts as another one"
    )
    yield "all that is released is computed from what the protected loader gave out"
    yield "nothing random acts before the channel; a few records were read again, and each later use is compared"
    if facts.ledger is None:
        yield (
            "uses in other runs, processes and engines are not known here and add up to these: give all of them one "
            "ledger=PATH, and save state_dict() with each checkpoint"
        )
    else:
        yield f"{facts.ledger} counts all uses of these records; nobody removes it or brings back an older one"
    yield _label_assumption(facts.labels)
    if facts.uncounted:
        yield f"released without noise and not counted, as allowed: {', '.join(map(repr, facts.uncounted))}"
    if not facts.secure:
        yield "NOISE IS SEEDED: whoever knows or tries the seed subtracts it; leave seed out to protect real records"


def _label_assumption(labels: LabelCount) -> str:
    """State the condition on which labels reveal no more than is counted."""
    if labels.classes is None:
        return "labels are not counted: give classes, and ln(classes) nats are added for a label"
    if (response := labels.response) is None:
        return f"labels are released as they are: {math.log(labels.classes):.4g} nats on top for a label"
    return (
        f"a label passes randomized response, which keeps it with a probability of {response.keep:.4g} "
        f"(ε = {response.epsilon:.4g}): {response.capacity:.4g} nats on top for a label. It is drawn once for each "
        "record under the key of a ledger or state; another key or response draws again and adds its nats. The order "
        "of batches does not depend on labels"
    )
