"""Configuration that compares protections on the user's own records."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float

from leakbound_lab.config.data import size_of
from leakbound_lab.config.whole import Config

LEAST_RECORDS = 300
"""Smallest number of records. With fewer, too few are left for training, test and attacker."""
_BATCH = 32
LEAST_MEMBERS = _BATCH
"""Smallest number of records that a client trains on, those of one step."""
FEWEST_REPLICAS = 6
"""Smallest number of replicas with which a paired sign-flip test at level .05 can decide: 2^(1−6) is .031."""
MOST_REPLICAS = 16
KEPT = (0.9, 0.5, 0.1)
"""Shares of a record's variance that the best linear estimate from its noisy copy misses, one per target."""
_STEP = 4
SIDES = range(8, 33, _STEP)
"""Sides that images are prepared with, in pixels."""
_EPOCHS = 60
_ROUNDS = (400, 1200)
_IDENTIFIED = (2, 10, 100)
_PROVABLE = (1.0, 4.0, 16.0)  # nats that identification among so few candidates can prove, and figures show
_NETWORK = "mlp"
_RECOVERED = 2  # records recovered from one gradient


@dataclass(frozen=True)
class OwnImages:
    """Facts about the user's images, or other records, that a configuration needs.

    Attributes:
        name: Name of the dataset.
        reader: Registered reader.
        count: Records of the training split.
        test: Records of the test split.
        height: Pixels of a column.
        width: Pixels of a row.
        table: Further settings of a dataset whose records are no images: path, label and standardize.
        label_nats: Most nats that a randomized response to a label reveals, or None if labels are kept.
        owner: Column of the images' file that says whose a record is, or None.
        most: Most records that are of one owner, or that share owners through equal records.
    """

    name: str
    reader: str
    count: int
    test: int
    height: int
    width: int
    table: Mapping[str, Any] = field(default_factory=dict)
    label_nats: float | None = None
    owner: str | None = None
    most: int = 1

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the dataset that do not depend on sizes."""
        labels = {} if self.label_nats is None else {"label_nats": self.label_nats}
        owner = {} if self.owner is None else {"owner": self.owner}
        return {"reader": self.reader, **(self.table or {"side": self.side}), **owner, **labels}

    @property
    def side(self) -> int:
        """Side of the prepared images: the mean one, a multiple of 4 from 8 to 32."""
        mean = (self.height + self.width) / 2
        return int(np.clip(_STEP * round(mean / _STEP), SIDES[0], SIDES[-1]))


def targets(eigenvalues: Float[np.ndarray, " d"]) -> tuple[float, ...]:
    """Compute capacities of natural noise at which the best linear estimate misses the shares ``KEPT``.

    Args:
        eigenvalues: (d,), λ, eigenvalues of the data covariance, each >= 0, not all 0.

    Returns:
        κ, nats of a use, to two digits: ½ Σ ln(1 + λ/σ) where Σ λσ/(λ + σ) = s Σ λ.
    """
    from scipy.optimize import brentq

    positive = eigenvalues[eigenvalues > 0]

    def missed(log_scale: float) -> float:
        return float((positive / (1.0 + positive * math.exp(-log_scale))).sum() / positive.sum())

    low = math.log(float(positive.min())) - 30.0
    high = math.log(float(positive.sum())) + 30.0
    scales = [math.exp(brentq(lambda log_scale, s=share: missed(log_scale) - s, low, high)) for share in KEPT]
    capacities = [0.5 * float(np.log1p(positive / scale).sum()) for scale in scales]
    return tuple(float(f"{capacity:.2g}") for capacity in capacities)


def sizes(count: int, most: int) -> tuple[int, int, int, int]:
    """Divide records into those of the attacker and the pool, and the pool into validation and room for members.

    Args:
        count: Records besides those for tests.
        most: Most records that are of one owner, or that share owners through equal records.

    Returns:
        Numbers of records of the attacker, of the pool, for validation, and the most that one client can train on,
        which is below ``LEAST_MEMBERS`` where owners are too large for parts of whole owners.
    """
    # Whole owners do not fill parts to the last record, neither those of the dataset nor those of a replica.
    spare = 3 * (most - 1)
    aux = (count - spare) // 3
    pool = count - spare - aux
    validation = max(30, (pool - spare) // 6)
    return aux, pool, validation, (pool - spare - validation) // 2


def comparison(
    images: OwnImages,
    preset: str,
    capacities: Sequence[float],
    *,
    replicas: int,
    members: int | None,
    seed: int,
    sees: str = "uploads",
) -> dict[str, Any]:
    """Compose the plain values of the configuration.

    Args:
        images: Facts about the records.
        preset: Name of the configuration. Results lie under ``results/<preset>``.
        capacities: κ of each target, nats of a use, for every shape of channel.
        replicas: Number of replicas of each run.
        members: Records that one client trains on, or None for as many as a replica has room for.
        seed: Seed of everything but secure noise.
        sees: What the attacker on membership sees: the ``uploads``, or the last ``weights`` alone.
    """
    aux, pool, validation, room = sizes(images.count, images.most)
    members = min(members or room, room)
    rounds = int(np.clip(round(_EPOCHS * members / _BATCH), *_ROUNDS))
    levels = [float(capacity) for capacity in capacities]
    recovered = {"dataset": images.name, "levels": {"natural": levels}, "images": _RECOVERED}
    return {
        "preset": preset,
        "seed": seed,
        "replicas": replicas,
        "datasets": {
            images.name: {
                **images.settings,
                "members": members,
                "validation": validation,
                "pool": pool,
                "test": images.test,
                "aux": aux,
            }
        },
        "training": {"learning_rates": [0.002, 0.01, 0.05, 0.2], "evaluations": 4},
        "studies": _studies(images, levels, rounds, sees),
        "attacks": _attacks(pool),
        "illustrations": {"reconstructions": recovered},
    }


def shares(config: Config) -> list[str]:
    """Say of each dataset how many records a network of a comparison trains on, and what the others are for."""
    return [
        f"Each network trains on {size.members} of the {size.images} records. Of the rest, {size.members} test the "
        f"attacks, {size.validation} choose the learning rate, {size.test} test the network, and {size.aux} are what "
        "the attacker knows. A network that trains on all of them may be more accurate."
        for size in (size_of(name, dataset) for name, dataset in config.datasets.items())
    ]


def _studies(images: OwnImages, capacities: list[float], rounds: int, sees: str) -> dict[str, Any]:
    """Compose the studies: protections compared, uploads scored, gradients inverted, records identified."""
    common = {"datasets": [images.name], "models": [_NETWORK]}
    shapes = ("natural", "white") if images.table else ("natural", "white", "personalized")
    gradients = {**common, "rounds": [0], "batch_sizes": [1]}
    defenses = {"none": [], "clipping": [0.0], "dpsgd": [0.5, 1.0, 2.0], **dict.fromkeys(shapes, capacities)}
    trained = {**common, "rounds": [rounds], "batch_sizes": [_BATCH]}
    uploads = {"uploads": {**trained, "defenses": defenses, "attacks": ["membership", "membership_uploads"]}}
    return {
        "comparison": {
            **trained,
            "rates": "all",
            "lengths": "all",
            "defenses": {**defenses, "early_stopping": []},
            "attacks": ["membership", "model_inversion"],
        },
        **(uploads if sees == "uploads" else {}),
        "gradient_inversion": {
            **gradients,
            "defenses": {"none": [], "natural": capacities},
            "attacks": ["gradient_inversion"],
        },
        "naming": {**gradients, "defenses": {"natural": list(_PROVABLE)}, "attacks": ["naming"]},
    }


def _attacks(pool: int) -> dict[str, Any]:
    """Compose attackers that take seconds for a network of this size."""
    return {
        "membership": {"epochs": 3, "learning_rates": [0.001], "references": 2, "draws": 1},
        "membership_uploads": {"rates": "chosen", "candidates": 200, "calibration": 50, "public": 300},
        "model_inversion": {"iterations": 8, "tv_weights": [0.0]},
        "gradient_inversion": {
            "images": 2,
            "search_iterations": 40,
            "iterations": 12,
            "estimator": {"steps": 0},
        },
        "naming": {"candidates": [count for count in _IDENTIFIED if count <= pool], "trials": 60},
    }
