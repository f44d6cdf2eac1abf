"""The guarantee of an engine in words, and the assumptions that it rests on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from leakbound.accounting.naming import naming_bound

if TYPE_CHECKING:
    from leakbound.engine.engine import ChannelEngine

_CANDIDATES = 1000
_VERSION = 2


def describe(engine: ChannelEngine) -> str:
    """Target, channel, what an attacker gets at most from the planned uses, and assumptions; one fact a line."""
    lines = [
        *_guarantee(engine),
        "",
        "Assumed, and not checked in full:",
        *(f"  - {one}" for one in _assumptions(engine)),
    ]
    return "\n".join(lines)


def law(engine: ChannelEngine) -> dict[str, Any]:
    """Facts that a state and an engine must share."""
    channel = engine.calibration.channel
    return {
        "version": _VERSION,
        "shape": channel.shape,
        "nats": float(engine.calibration.information(1)),
        "power": channel.noise_power,
        "noise": engine.noise,
        "seed": engine._seed,
        "inputs": list(engine.layout.shape),
    }


def _guarantee(engine: ChannelEngine) -> Iterator[str]:
    """Facts that hold."""
    calibration, target = engine.calibration, engine.target
    frozen = engine.noise == "frozen"
    looks = 1 if frozen or target.uses is None else target.uses
    std = np.sqrt(calibration.channel.noise_power / calibration.channel.dimension)
    one, together = calibration.information(1), calibration.information(looks)
    yield f"{target} by {calibration.channel.shape} noise, {engine.noise}, {'secure' if engine.secure else 'seeded'}"
    yield f"inputs of shape {engine.layout.shape}, values from {engine.layout.low:g} to {engine.layout.high:g}"
    yield f"noise of standard deviation {std:.4g} per value (root mean square), in the units of the data"
    yield f"one use tells at most {one:.6g} nats of a record"
    if frozen:
        planned = "all uses of the one noisy copy"
    elif target.uses is None:
        planned = "one use (their number is not limited: see engine.leakage())"
    else:
        planned = f"{looks} uses"
        yield f"{looks} uses tell at most {together:.6g} nats together ({looks * one:.6g} if added up)"
    if (own := engine.own_capacity) is not None and own.records > 1:
        yield (
            f"{own.rounded:g} nats by the moments of the private records ({own.records} of them were compared): a "
            "statistic of these, so keep it to yourself"
        )
    error, blind = calibration.linear_error(looks), calibration.linear_error(0)
    yield f"after {planned}:"
    yield f"  the best linear estimate errs by {error:.4g} squared per value; guessing the mean errs by {blind:.4g}"
    named = naming_bound(together, _CANDIDATES) if math.isfinite(together) else 1.0
    yield f"  the true one of {_CANDIDATES} equally likely records is named with a probability of at most {named:.4g}"


def _assumptions(engine: ChannelEngine) -> Iterator[str]:
    """Conditions that they rest on."""
    moments = engine.calibration.moments
    shrunk = f", shrunk by {moments.shrinkage:.2g}" if moments.shrinkage else ""
    yield (
        f"private records have the covariance of the {moments.count} calibration records{shrunk}; compared are some "
        "of them, on average; whatever their law, nats and naming then hold for every attacker"
    )
    yield (
        "the squared error is the least for Gaussian records alone; of images, an estimate that is not linear can err "
        "less"
    )
    if engine.calibrate_to_own:
        yield "the channel is a statistic of the records that it protects: what it reveals of them is not counted"
    yield (
        "a record is its values: equal ones at several indices are one record, and a cropped, scaled or augmented "
        "version of it counts as another one"
    )
    yield "all that is released is computed from what the protected loader gave out"
    yield "nothing random acts before the channel; a few records were read again, and each later use is compared"
    if engine.ledger is None:
        yield (
            "uses in other runs, processes and engines are not known here and add up to these: give all of them one "
            "ledger=PATH, and save state_dict() with each checkpoint"
        )
    else:
        yield f"{engine.ledger} counts all uses of these records; nobody removes it or brings back an older one"
    if engine.classes is None:
        yield "labels are not counted: give classes, and ln(classes) nats are added for a label"
    else:
        yield f"labels are released as they are: {math.log(engine.classes):.4g} nats on top for a label"
    if engine.uncounted:
        yield f"released without noise and not counted, as allowed: {', '.join(map(repr, engine.uncounted))}"
    if not engine.secure:
        yield "NOISE IS SEEDED: whoever knows or tries the seed subtracts it; leave seed out to protect real records"
