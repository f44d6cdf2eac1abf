"""Settings of training: those that all defenses share, and all that the training of one run depends on."""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import Count, PrivacyNoise, Rates, Seconds, Settings

Length = Literal["half", "best", "full"]
"""Point of a training whose weights are kept: half of its steps, its best point on validation records, or its end."""
LENGTHS: tuple[Length, ...] = ("half", "best", "full")
Precision = Literal["float32", "tf32", "bfloat16"]
"""Arithmetic of products in forward and backward passes."""


class TrainingConfig(Settings):
    """Training of target models, the same for every defense."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    learning_rates: Rates = (0.001, 0.003, 0.01, 0.03)
    """Candidates, each trained at full length. Every defense and level has equally many, and the validation
    records of each replica choose among them."""
    evaluations: Count = 10
    """Points of the accuracy and loss curves, the last one at the end."""
    checkpoint_seconds: Seconds = 30.0
    """Least time between two checkpoints, in seconds."""
    max_stack: Count | Literal["auto"] = "auto"
    """Networks trained as one batch. auto takes as many as fit the cache of a CPU, or the memory of a GPU."""
    precision: Precision = "float32"
    """Arithmetic of the products in forward and backward passes; a CPU takes float32 alone. On a GPU tf32 and bfloat16
    halve the time of a step of large networks and lead to other weights: in tf32 those of ResNet10 were .16 of their
    way from float32's after 20 steps. Weights, noise, clipping, evaluations and attacks are in float32 everywhere."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """All settings that the training of a run with its replicas depends on, as the configuration has them.

    A :class:`~leakbound_lab.training.request.TrainingRequest` is these settings with images, channel and files. So what
    is added here is hashed with the job, recorded in its provenance, and read by training.

    Attributes:
        model: Name of a registered network.
        defense: What the client does against an attacker.
        slug: Name of the run.
        level: Level of the defense in its own unit, e.g. capacity κ (nats per use) of a channel, or None
            without a defense.
        batch_size: Records in a step, or their expected number under Poisson sampling. The defense by a large
            batch multiplies it.
        seed: Seed of the configuration. Each generator derives from (seed, dataset, replica, purpose), so
            that all defenses, levels and candidates see the same members, weights, batches and standard
            normal noise.
        privacy_noise: Whether noise that protects records is ``seeded`` or ``secure``.
        lengths: Points of each training whose weights are kept, from ``LENGTHS`` in their order. The last is
            ``full``.
        device: Device of the training: ``cpu`` or ``cuda``, before a job chooses one also ``auto``.
        config: Momentum, points of the curves, seconds between checkpoints, size of a stack, precision.
        rounds: Optimisation steps of the run, >= 0. A defense may take fewer.
        replicas: Independent repetitions, each with other records, weights, batches and noise, >= 1.
    """

    model: str
    defense: Defense
    slug: str
    level: float | None
    batch_size: int
    seed: int
    privacy_noise: PrivacyNoise = "seeded"
    lengths: tuple[Length, ...] = ("full",)
    device: str = "cpu"
    config: TrainingConfig
    rounds: int
    replicas: int = 1

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain values, as they are hashed and recorded.

        What nothing depends on, and what earlier versions did not have, is left out as long as it is as it was then.
        """
        usual = {"precision"} if self.config.precision == "float32" else set()
        values = {field.name: getattr(self, field.name) for field in fields(TrainingSettings)}
        values |= {"defense": self.defense.model_dump(mode="json"), "lengths": list(self.lengths)}
        values["training"] = values.pop("config").model_dump(mode="json", exclude=usual)
        if not self.defense.draws_noise:
            del values["privacy_noise"]
        if self.lengths == ("full",):
            del values["lengths"]
        return values
