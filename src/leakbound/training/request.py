"""The two values of every trainer: what is asked for, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from torch import Tensor

from leakbound.channels.channel import Channel
from leakbound.config import Defense, TrainingConfig
from leakbound.datasets import ImageDataset
from leakbound.provenance import PrivacyEvent


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One run with all its replicas, as every trainer is asked for it.

    Attributes:
        dataset: Members, non-members and class names.
        model: Registered network.
        defense: What the client does against an attacker.
        level: Capacity κ (nats per use) of a channel, noise multiplier of DP; None without a defense.
        channel: The calibrated channel, for a channel defense only.
        rounds: Optimisation steps, >= 0.
        batch_size: Records in a step; the expected number under Poisson sampling.
        learning_rate: Of SGD, > 0, constant.
        config: Momentum, points of the curves, spacing of checkpoints, size of a stack.
        seed: Seed of the configuration; each generator derives from (seed, slug, replica, purpose).
        slug: Name of the run.
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


@dataclass(frozen=True)
class TrainingResult:
    """Trained replicas.

    Attributes:
        weights: Parameter name to its values (replicas, ...), on the CPU; NaN for a diverged replica.
        curves: Columns ``replica`` (int), ``step`` (int), ``metric`` (str), ``value`` (float). Metrics are
            ``train_loss`` (nats), ``train_accuracy`` and ``test_accuracy``, all on clean images, and ``epsilon`` for
            DP. The rows of the last step are computed on all records, earlier ones on at most 2,000 of each split.
            The curve of a diverged replica ends before its divergence was seen.
        events: What was done to the private records, per replica.
        diverged: Whether a replica's loss or weights stopped being finite; such a replica is no result.
        learning_rate: As asked for.
    """

    weights: dict[str, Tensor]
    curves: pd.DataFrame
    events: list[PrivacyEvent]
    diverged: list[bool]
    learning_rate: float
