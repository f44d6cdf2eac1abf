"""Train a run by its defense's trainer, after checking that it can."""

import math
from dataclasses import replace
from typing import cast, get_args

import torch

from leakbound.models.initialization import frozen_hash
from leakbound.randomness.seeding import PrivacyNoise
from leakbound.registry import load_attribute
from leakbound.training.network_trial import network_problems
from leakbound.training.precision import full_precision
from leakbound.training.request import TrainingRequest, TrainingResult, initial_network


class UntrainableError(ValueError):
    """A run that cannot be trained as asked. The message says what to change."""


def train(request: TrainingRequest) -> TrainingResult:
    """Train all replicas of a run, with all candidate learning rates.

    Equal requests give equal bytes on a CPU with an equal number of threads, also if a training was
    interrupted and resumed from its checkpoint. With secure noise results always differ. The caller removes
    the checkpoint once the result is stored.

    Args:
        request: The run: data, network, defense, rates, replicas.

    Returns:
        Weights, curves, privacy events and the chosen rates.

    Raises:
        UntrainableError: Before the first step, if the defense cannot train this network on these images with
            these settings.
        UnknownNameError: If the model or the trainer is not registered.

    Example:
        >>> import numpy as np
        >>> from leakbound.datasets import Drawing, ImageDataset, Split
        >>> generator = np.random.default_rng(0)
        >>> images = generator.uniform(-1, 1, (60, 1, 8, 8)).astype(np.float32)
        >>> records = Split(images, np.arange(60) % 2)
        >>> drawing = Drawing(members=20, validation=10, seed=0)
        >>> dataset = ImageDataset("noise", ("even", "odd"), records, records, records, drawing)
        >>> from leakbound.config.defenses import Undefended
        >>> from leakbound.config.training import TrainingConfig
        >>> from leakbound.training import TrainingRequest, train
        >>> request = TrainingRequest(
        ...     dataset=dataset, model="mlp", defense=Undefended(), level=None, rounds=4, batch_size=10,
        ...     learning_rates=(0.1,), config=TrainingConfig(evaluations=1), seed=0, slug="example", replicas=2,
        ... )
        >>> train(request).weights["head.weight"].shape
        torch.Size([2, 2, 32])
    """
    trainer = load_attribute(request.defense.trainer, f"trainer of {request.defense.mechanism!r}")
    check_request(request)
    with full_precision(request.device):
        result = cast(TrainingResult, trainer(request))
    return replace(result, frozen=frozen_hash(initial_network(request, 0)))


def check_request(request: TrainingRequest) -> None:
    """Check that a run can be trained with its settings.

    Raises:
        UntrainableError: If it cannot. The message lists all reasons.
    """
    problems = [
        *_data_problems(request),
        *request.client.problems(request.image_shape),
        *_noise_problems(request),
        *network_problems(
            request.model,
            request.image_shape,
            len(request.dataset.classes),
            clips=request.defense.clips,
            scored=[] if request.scoring is None else [request.defense.clips],
        ),
    ]
    if request.config.precision != "float32" and torch.device(request.device).type != "cuda":
        problems.append(
            f"training.precision = {request.config.precision!r} on the device {request.device!r}: only a GPU "
            "computes in it; leave it at 'auto' or 'float32', or train on a GPU"
        )
    if problems:
        raise UntrainableError("\n".join(f"{request.slug}: {problem}" for problem in problems))


def _data_problems(request: TrainingRequest) -> list[str]:
    """List problems with images, labels and the sizes of a step."""
    dataset = request.dataset
    members = dataset.drawing.members
    problems = []
    if request.records > members:
        factor = "" if request.records == request.batch_size else f", {request.records} with its factor,"
        problems.append(
            f"batch_size = {request.batch_size}{factor} but there are {members} members; take a smaller "
            "batch or more members"
        )
    if request.batch_size < 1 or request.rounds < 0 or request.replicas < 1:
        problems.append(
            f"batch_size = {request.batch_size}, rounds = {request.rounds}, replicas = {request.replicas}: must be at "
            "least 1, 0 and 1"
        )
    if not request.learning_rates or any(
        not (rate > 0 and math.isfinite(rate)) for rate in request.learning_rates
    ):
        problems.append(
            f"learning_rates = {list(request.learning_rates)}: give at least one, all positive and finite"
        )
    if dataset.drawing.validation < 1 or 2 * members + dataset.drawing.validation > len(dataset.pool):
        problems.append(
            f"a replica draws {members} members, as many others and {dataset.drawing.validation} validation records "
            f"from a pool of {len(dataset.pool)}"
        )
    for split in ("pool", "test"):
        records = getattr(dataset, split)
        labels = records.labels
        if records.images.shape[1:] != dataset.pool.images.shape[1:]:
            problems.append(
                f"{split} images are {records.images.shape[1:]}, those of the pool {dataset.pool.images.shape[1:]}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(request.dataset.classes):
            problems.append(
                f"{split} labels reach from {labels.min()} to {labels.max()}, but there are "
                f"{len(request.dataset.classes)} classes"
            )
    return problems


def _noise_problems(request: TrainingRequest) -> list[str]:
    """List noise of unknown origin, and a plugin trainer that would draw secure noise from seeds."""
    origin = request.privacy_noise
    defense = request.defense
    if origin not in get_args(PrivacyNoise):
        return [f"privacy_noise = {origin!r}: must be one of {', '.join(get_args(PrivacyNoise))}"]
    if origin != "secure" or defense.secure_noise or not defense.draws_noise:
        return []
    return [
        f"privacy_noise = 'secure': {defense.mechanism!r} does not say that it draws its noise from "
        "request.noise(replica); once it does, state secure_noise = True in its settings"
    ]
