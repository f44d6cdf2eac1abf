"""The two values of every trainer: a request, and its result; and the request of reference networks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from leakbound.accounting.event import PrivacyEvent
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import estimate_moments
from leakbound.config.defenses import Defense
from leakbound.config.training import Length, TrainingConfig
from leakbound.datasets import ImageDataset
from leakbound.datasets.splits import reference_dataset
from leakbound.randomness.origin import PrivacyNoise
from leakbound.randomness.seeding import derive_seed, torch_generator
from leakbound.randomness.sources import SecureNoise, SeededNoise, noise_source
from leakbound.training.client_steps import ClientStep, client_step

_CHUNK = 4096  # records of the pool whose covariance is computed at once


@dataclass(frozen=True)
class Slot:
    """One model of a run: a replica at one candidate learning rate."""

    replica: int
    learning_rate: float


@dataclass(frozen=True, kw_only=True)
class TrainingRequest:
    """One run with all its replicas and candidate learning rates, as every trainer is asked for it.

    Attributes:
        dataset: Pool that replicas draw from, test records and class names.
        model: Registered network.
        defense: What the client does against an attacker.
        level: As the defense means it, e.g. capacity κ (nats per use) of a channel, or None without a defense.
        channel: The calibrated channel, for a channel defense only.
        rounds: Optimisation steps of the run, >= 0. A defense may take fewer.
        batch_size: Records in a step; the expected number under Poisson sampling. A large batch multiplies
            it.
        learning_rates: Candidates of SGD's, > 0, constant. Each is trained at full length on all members.
        config: Momentum, points of the curves, spacing of checkpoints, size of a stack.
        seed: Seed of the configuration. Each generator derives from (seed, dataset, replica, purpose), so
            that all defenses, levels and candidates see the same members, weights, batches and standard
            normal noise.
        slug: Name of the run.
        privacy_noise: Whether noise that protects records is ``seeded`` or ``secure``.
        replicas: Repetitions of the experiment, with records, weights, batches and noise of their own, >= 1.
        lengths: Points of each training whose weights are kept, of ``LENGTHS`` in their order, with the last,
            ``full``.
        device: Where it is trained, e.g. ``cpu`` or ``cuda``.
        checkpoint: File to resume from and to save to, or None to do neither.
        leakage_after: Gives the nats that a network reveals about one record after an event, or None without
            a bound; for the curve of the accountant.
        on_rows: Called at each point of the curves with those of the stack in training, for a live view.
    """

    dataset: ImageDataset
    model: str
    defense: Defense
    level: float | None
    rounds: int
    batch_size: int
    learning_rates: tuple[float, ...]
    config: TrainingConfig
    seed: int
    slug: str
    privacy_noise: PrivacyNoise = "seeded"
    channel: GaussianChannel | None = None
    replicas: int = 1
    lengths: tuple[Length, ...] = ("full",)
    device: str = "cpu"
    checkpoint: Path | None = None
    leakage_after: Callable[[PrivacyEvent], float | None] | None = None
    on_rows: Callable[[pd.DataFrame], None] | None = None

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(colors, height, width) of the images."""
        colors, height, width = self.dataset.pool.images.shape[1:]
        return colors, height, width

    @property
    def slots(self) -> list[Slot]:
        """Models to train: every replica with every candidate, replica by replica, candidates ascending."""
        return [Slot(replica, rate) for replica in range(self.replicas) for rate in self.candidates]

    @property
    def candidates(self) -> list[float]:
        """Distinct learning rates, ascending."""
        return sorted(set(self.learning_rates))

    @property
    def steps(self) -> int:
        """Optimisation steps that the defense takes."""
        return self.defense.steps(self.level, self.rounds)

    @property
    def records(self) -> int:
        """Records that a step averages over."""
        return self.defense.records_in_step(self.level, self.batch_size)

    def noise(
        self, replica: int, purpose: str = "noise", device: str | None = None
    ) -> SeededNoise | SecureNoise:
        """Source of a replica's noise for one purpose, by default on the device of the training.

        All noise that protects records comes from it, and so does the choice of records where an accountant
        counts on its being secret.
        """
        words = (self.dataset.name, replica, purpose)
        return noise_source(self.privacy_noise, self.seed, *words, device=device or self.device)

    def generator(self, replica: int, purpose: str) -> torch.Generator:
        """Generator on the CPU of a replica's draws for one purpose that no secret depends on."""
        return torch_generator(self.seed, self.dataset.name, replica, purpose)

    @cached_property
    def client(self) -> ClientStep:
        """Step of the client under the defense."""
        images = self.dataset.pool.images
        chunks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
        return client_step(self.defense, self.level, self.channel, lambda: estimate_moments(chunks))


@dataclass(frozen=True)
class TrainingResult:
    """Trained slots, in the order of the request's, each with all lengths that the request asks for.

    Attributes:
        weights: Parameter name to its values (slots · lengths, ...), on the CPU, or NaN where training had
            diverged.
        curves: Columns ``replica`` (int), ``learning_rate`` (float), ``step`` (int), ``metric`` (str),
            ``value`` (float). Metrics are ``<part>_loss`` (nats) and ``<part>_accuracy`` of train (the
            members), validation and test, all on clean images, ``epsilon`` for DP, ``leakage`` (nats of one
            record so far) where the request asks for it and a bound holds, and ``kept_step`` at the end where
            a defense keeps the weights of its best point: the last rows are those of the weights kept. The
            rows of the last step are computed on all records, earlier ones on at most 2,000 of each part. The
            curve of a diverged slot ends before its divergence was seen. Where the request asks for several
            lengths, a column ``length``: curves are those of ``full``, and each other one has a single point,
            computed on all records, whose ``epsilon`` and ``leakage`` are those of the steps up to it, of the
            best point those of the whole training that it was chosen from.
        events: What was done to the private records by the whole training, per slot.
        diverged: Whether a slot's loss or weights stopped being finite. Such a slot is no result.
        rates: One row per network of ``weights``, as :func:`leakbound.training.rates.chosen_rates` has them
            for slots, and :func:`leakbound.training.rates.rates_of_lengths` for several lengths.
    """

    weights: dict[str, Tensor]
    curves: pd.DataFrame
    events: list[PrivacyEvent]
    diverged: list[bool]
    rates: pd.DataFrame


def reference_request(
    request: TrainingRequest, count: int, learning_rates: Iterable[float]
) -> TrainingRequest:
    """Request of the reference networks of a run: ``count`` at each learning rate, in place of its replicas.

    They are trained as the networks of the run are, on other draws from the same pool. A comparison with them
    shows what a network has learned about a record beyond what such networks learn anyway.

    Records, weights, batches and noise are drawn from seeds of their own, the same for every defense and
    level, so that comparisons of defenses stay paired.
    """
    config = request.config
    if not request.defense.keeps_best and "best" not in request.lengths:  # their curves are not used
        config = config.model_copy(update={"evaluations": 1})
    return replace(
        request,
        config=config,
        dataset=reference_dataset(request.dataset),
        seed=derive_seed(request.seed, "reference"),
        replicas=count,
        learning_rates=tuple(sorted(set(learning_rates))),
    )
