"""The two values of every trainer: a request, and its result."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
from torch import Tensor

from leakbound.accounting.event import PrivacyEvent
from leakbound.channels.channel import Channel
from leakbound.channels.covariance import estimate_moments
from leakbound.config.defenses import Defense
from leakbound.config.training import TrainingConfig
from leakbound.datasets import ImageDataset
from leakbound.randomness.origin import PrivacyNoise
from leakbound.randomness.sources import SecureNoise, SeededNoise, noise_source
from leakbound.training.client_steps import ClientStep, client_step

_CHUNK = 4096  # members whose covariance is computed at once


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One run with all its replicas, as every trainer is asked for it.

    Attributes:
        dataset: Members, non-members and class names.
        model: Registered network.
        defense: What the client does against an attacker.
        level: As the defense means it, e.g. capacity κ (nats per use) of a channel; None without a defense.
        channel: The calibrated channel, for a channel defense only.
        rounds: Optimisation steps, >= 0.
        batch_size: Records in a step; the expected number under Poisson sampling. A large batch multiplies it.
        learning_rate: Of SGD, > 0, constant.
        config: Momentum, points of the curves, spacing of checkpoints, size of a stack.
        seed: Seed of the configuration; each generator derives from (seed, slug, replica, purpose).
        slug: Name of the run.
        privacy_noise: Whether noise that protects records is ``seeded`` or ``secure``.
        replicas: Number of models that differ by seed alone, >= 1.
        device: Where it is trained, e.g. ``cpu`` or ``cuda``.
        checkpoint: File to resume from and to save to; None to do neither.
        on_rows: Called at each point of the curves with those of the stack in training, for a live view.
    """

    dataset: ImageDataset
    model: str
    defense: Defense
    level: float | None
    rounds: int
    batch_size: int
    learning_rate: float
    config: TrainingConfig
    seed: int
    slug: str
    privacy_noise: PrivacyNoise = "seeded"
    channel: Channel | None = None
    replicas: int = 1
    device: str = "cpu"
    checkpoint: Path | None = None
    on_rows: Callable[[pd.DataFrame], None] | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(colors, height, width) of the members."""
        colors, height, width = self.dataset.train.images.shape[1:]
        return colors, height, width

    @property
    def records(self) -> int:
        """Records that a step averages over."""
        return self.defense.records_in_step(self.level, self.batch_size)

    def noise(self, replica: int, purpose: str = "noise", device: str | None = None) -> SeededNoise | SecureNoise:
        """Source of a replica's noise for one purpose, by default on the device of the training.

        All noise that protects records comes from it, and so does the choice of records where an accountant counts on
        its being secret.
        """
        return noise_source(self.privacy_noise, self.seed, self.slug, replica, purpose, device=device or self.device)

    @cached_property
    def client(self) -> ClientStep:
        """Step of the client under the defense."""
        images = self.dataset.train.images
        chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
        return client_step(self.defense, self.level, self.channel, lambda: estimate_moments(chunks))


@dataclass(frozen=True)
class TrainingResult:
    """Trained replicas.

    Attributes:
        weights: Parameter name to its values (replicas, ...), on the CPU; NaN for a diverged replica.
        curves: Columns ``replica`` (int), ``step`` (int), ``metric`` (str), ``value`` (float). Metrics are
            ``train_loss`` and ``test_loss`` (nats), ``train_accuracy`` and ``test_accuracy``, all on clean images, and
            ``epsilon`` for DP. The rows of the last step are computed on all records, earlier ones on at most 2,000 of
            each split. The curve of a diverged replica ends before its divergence was seen.
        events: What was done to the private records, per replica.
        diverged: Whether a replica's loss or weights stopped being finite; such a replica is no result.
        learning_rate: As asked for.
    """

    weights: dict[str, Tensor]
    curves: pd.DataFrame
    events: list[PrivacyEvent]
    diverged: list[bool]
    learning_rate: float
