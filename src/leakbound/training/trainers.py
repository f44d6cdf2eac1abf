"""Train a run by its defense's trainer, after checking that it can."""

from __future__ import annotations

import math
from typing import cast, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from leakbound.config.defenses import DPSGD
from leakbound.randomness.origin import PrivacyNoise
from leakbound.registry import load
from leakbound.training import loop
from leakbound.training.request import TrainingRequest, TrainingResult


class UntrainableError(ValueError):
    """A run that cannot be trained as asked; the message says what to change."""


def train(request: TrainingRequest) -> TrainingResult:
    """Train all replicas of a run.

    Equal requests give equal bytes on a CPU with an equal number of threads, also if the training was killed and went
    on from its checkpoint; with secure noise they never do. The checkpoint stays, for the caller to remove once the
    result is stored.

    Raises:
        UntrainableError: Before the first step, if the defense cannot train this network, on these images, so.
        UnknownNameError: If the model or the trainer is not registered.
    """
    trainer = load(request.defense.trainer, f"trainer of {request.defense.mechanism!r}")
    check(request)
    return cast(TrainingResult, trainer(request))


def check(request: TrainingRequest) -> None:
    """Refuse a run that cannot be trained as asked.

    Raises:
        UntrainableError: With every reason found.
    """
    problems = [
        *_data_problems(request), *_level_problems(request), *_noise_problems(request), *_model_problems(request)
    ]  # fmt: skip
    if problems:
        raise UntrainableError("\n".join(f"{request.slug}: {problem}" for problem in problems))


def _data_problems(request: TrainingRequest) -> list[str]:
    """What is wrong with images, labels and the sizes of a step."""
    members, found = request.dataset.train, []
    if request.records > len(members.labels):
        factor = "" if request.records == request.batch_size else f", {request.records} with its factor,"
        found.append(
            f"batch_size = {request.batch_size}{factor} but there are {len(members.labels)} members; take a smaller "
            "batch or more members"
        )
    if request.batch_size < 1 or request.rounds < 0 or request.replicas < 1:
        found.append(
            f"batch_size = {request.batch_size}, rounds = {request.rounds}, replicas = {request.replicas}: must be at "
            "least 1, 0 and 1"
        )
    if not (request.learning_rate > 0 and math.isfinite(request.learning_rate)):
        found.append(f"learning_rate = {request.learning_rate}: must be positive and finite")
    for split in ("train", "test"):
        part = getattr(request.dataset, split)
        if part.images.shape[1:] != members.images.shape[1:]:
            found.append(f"{split} images are {part.images.shape[1:]}, train images {members.images.shape[1:]}")
        if len(part.labels) and not 0 <= part.labels.min() <= part.labels.max() < len(request.dataset.classes):
            found.append(
                f"{split} labels reach from {part.labels.min()} to {part.labels.max()}, but there are "
                f"{len(request.dataset.classes)} classes"
            )
    return found


def _level_problems(request: TrainingRequest) -> list[str]:
    """What is wrong with level and channel."""
    defense, level, channel = request.defense, request.level, request.channel
    pixels = math.prod(request.image_shape)
    if defense.channel is not None:
        if channel is None or level is None:
            return [f"level = {level}, channel = {channel and channel.shape}: a channel defense needs both"]
        found = []
        if channel.dimension != pixels:
            found.append(
                f"the channel has {channel.dimension} dimensions, the images {pixels} values; calibrate it on this "
                "dataset"
            )
        if channel.shape != defense.channel.shape:
            found.append(f"the channel is of shape {channel.shape!r}, the defense of shape {defense.channel.shape!r}")
        if channel.capacity != level:
            found.append(f"the channel was calibrated to {channel.capacity} nats, the level is {level}")
        return found
    if channel is not None:
        return [f"a channel ({channel.shape}) was given, but {defense.mechanism} has none"]
    if (problem := defense.level_problem(level)) is not None:
        return [f"level = {level}: {problem}"]
    if (index := defense.dropped(level)) is not None and index >= pixels:
        return [f"level = {level}: images of {pixels} values have the principal directions 0 to {pixels - 1}"]
    return []


def _noise_problems(request: TrainingRequest) -> list[str]:
    """Noise of unknown origin, or a trainer from outside that would draw it from seeds."""
    origin, defense = request.privacy_noise, request.defense
    if origin not in get_args(PrivacyNoise):
        return [f"privacy_noise = {origin!r}: must be one of {', '.join(get_args(PrivacyNoise))}"]
    if origin != "secure" or defense.secure_noise or not defense.draws_noise:
        return []
    return [
        f"privacy_noise = 'secure': {defense.mechanism!r} does not say that it draws its noise from "
        "request.noise(replica); once it does, state secure_noise = True in its settings"
    ]


def _model_problems(request: TrainingRequest) -> list[str]:
    """Layers that break a defense, or equal results on equal seeds."""
    model, found = loop.build(request, 0), []
    for name, layer in model.named_modules():
        if isinstance(layer, _BatchNorm):
            found.append(
                f"{request.model}.{name} is a {type(layer).__name__}, which mixes the records of a batch; all defenses "
                "train the same network, so use GroupNorm"
            )
        if isinstance(layer, _DropoutNd) and layer.p > 0:
            found.append(
                f"{request.model}.{name} is a {type(layer).__name__}, which draws from a generator that no seed of a "
                "run controls; remove it"
            )
    return found + (_opacus_problems(request.model, model) if isinstance(request.defense, DPSGD) else [])


def _opacus_problems(name: str, model: nn.Module) -> list[str]:
    """What Opacus' validator refuses in the registered network ``name``."""
    from opacus.validators import ModuleValidator

    return [f"{name} cannot be trained by Opacus: {error}" for error in ModuleValidator.validate(model, strict=False)]
