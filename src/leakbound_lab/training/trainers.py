"""Train a run by its defense's trainer, after checking that it can."""

import copy
import json
import math
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from typing import cast, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from leakbound.randomness.seeding import PrivacyNoise
from leakbound.registry import UnknownNameError, load_attribute
from leakbound_lab import models
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models.classifier import frozen_hash
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.registries import MODELS
from leakbound_lab.training import stack
from leakbound_lab.training.layer_factors import scored_layers
from leakbound_lab.training.request import TrainingRequest, TrainingResult, initial_network
from leakbound_lab.training.stack import full_precision


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
        >>> from leakbound_lab.datasets import Drawing, ImageDataset, Split
        >>> generator = np.random.default_rng(0)
        >>> images = generator.uniform(-1, 1, (60, 1, 8, 8)).astype(np.float32)
        >>> records = Split(images, np.arange(60) % 2)
        >>> drawing = Drawing(members=20, validation=10, seed=0)
        >>> dataset = ImageDataset("noise", ("even", "odd"), records, records, records, drawing)
        >>> from leakbound_lab.config.defenses import Undefended
        >>> from leakbound_lab.config.training import TrainingConfig
        >>> from leakbound_lab.training import TrainingRequest, train
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
        *_size_problems(request),
        *_split_problems(request.dataset),
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


def _size_problems(request: TrainingRequest) -> list[str]:
    """List problems with the sizes of a step, the learning rates, and the records that a replica draws."""
    dataset = request.dataset
    members = dataset.drawing.members
    problems = []
    if request.records > members:
        factor = "" if request.records == request.batch_size else f", {request.records} with its factor,"
        problems.append(
            f"batch_size = {request.batch_size}{factor} but there are {members} members; take a smaller "
            "batch or more members"
        )
    elif request.records > 0 and (problem := request.defense.batch_problem(members, request.records)):
        problems.append(f"batch_size = {request.batch_size}: {problem}")
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
    return problems


def _split_problems(dataset: ImageDataset) -> list[str]:
    """List problems with the images and labels of the pool and the test records."""
    problems = []
    for split in ("pool", "test"):
        records = getattr(dataset, split)
        labels = records.labels
        if records.images.shape[1:] != dataset.pool.images.shape[1:]:
            problems.append(
                f"{split} images are {records.images.shape[1:]}, those of the pool {dataset.pool.images.shape[1:]}"
            )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(dataset.classes):
            problems.append(
                f"{split} labels reach from {labels.min()} to {labels.max()}, but there are "
                f"{len(dataset.classes)} classes"
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


_TRIAL_IMAGES = 3
_CLOSE = 1e-3  # relative difference of logits that rounding explains


def network_problems(
    name: str,
    image_shape: tuple[int, int, int] | None,
    classes: int,
    *,
    clips: bool,
    scored: Collection[bool] = (),
) -> list[str]:
    """List reasons why a network cannot be trained as asked, each with the remedy.

    A network from outside is built three times, and computes logits and gradients of a few images of noise.

    Args:
        name: Registered name.
        image_shape: (colors, height, width), or None for records of unknown shape.
        classes: Number of labels.
        clips: Whether a defense clips gradients of single records.
        scored: Whether gradients are clipped, for the runs whose uploads are scored.

    Raises:
        UnknownNameError: If no model has this name.
    """
    what = "tables" if image_shape is None else "images of {} color(s) and {}×{} pixels".format(*image_shape)
    # Twice the same seed must give the same weights, another seed others.
    seeds = (0,) if name in MODELS.builtin else (0, 0, 1)
    try:
        if image_shape is None:
            takes = getattr(MODELS.get(name), "any_shape", False)
            return [] if takes else [f"{name} takes images, not tables; see any_shape in docs/extending.md"]
        colors, height, width = image_shape
        side = height if height == width else (height, width)
        images = torch.rand(_TRIAL_IMAGES, *image_shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jobs say them
            networks = [
                models.build(name, colors, classes, torch.Generator().manual_seed(seed), side)
                for seed in seeds
            ]
            problems = [
                *_layer_problems(name, networks[0], clips=clips),
                *_scoring_problems(name, networks[0], scored),
            ]
            if problems or name in MODELS.builtin:
                return problems
            return [*_weight_problems(name, *networks)] or [*_call_problems(name, networks, images, classes)]
    except UnknownNameError:
        raise
    except Exception as error:  # of a user's code
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return [f"{name} cannot be built, copied or differentiated by torch.func.vmap for {what}: {said}"]


def _layer_problems(name: str, model: nn.Module, *, clips: bool) -> Iterator[str]:
    """Yield layers that break a defense, or equal results on equal seeds."""
    for place, layer in model.named_modules():
        this = f"{name}.{place} is a {type(layer).__name__}, which"
        if isinstance(layer, _BatchNorm) and layer.training:
            yield (
                f"{this} mixes the records of a batch; all defenses train the same network, so use "
                "GroupNorm, or call eval() of a pretrained one in the constructor"
            )
        if isinstance(layer, _DropoutNd) and layer.training and layer.p > 0:
            yield f"{this} draws from a generator that no seed of a run controls; remove it"
    if clips and name not in MODELS.builtin:  # Opacus trains all that are built in (tested)
        from opacus.validators import ModuleValidator  # slow import

        for error in ModuleValidator.validate(model, strict=False):
            if model.training or "training mode" not in str(error):
                yield f"{name} cannot be trained by Opacus: {error}"


def _scoring_problems(name: str, model: nn.Module, scored: Collection[bool]) -> Iterator[str]:
    """Yield that no layer of a network can be scored."""
    for clips in scored:
        try:
            scored_layers(name, model, clips=clips)
        except ValueError as error:
            yield str(error)
            return


def _weight_problems(name: str, first: nn.Module, again: nn.Module, other: nn.Module) -> Iterator[str]:
    """Yield what is missing, and weights that do not follow from the seed as they have to."""
    if not list(first.parameters()):
        yield f"{name} has no parameter that is trained: leave requires_grad=True to some"
    if not (isinstance(getattr(first, "head", None), nn.Linear) and hasattr(first, "features")):
        yield f"{name} needs a method features(images) and an attribute head, the last torch.nn.Linear"
    if changed := _differing_names([*first.named_parameters(), *first.named_buffers()], again):
        yield (
            f"{name}: {changed} differ between two networks of one seed; draw weights by torch's global "
            "generator, which follows the seed while the constructor runs"
        )
    elif changed := _differing_names([*first.named_buffers()], other):
        yield (
            f"{name}: {changed} are not trained, but differ between the networks of two seeds; load them "
            "from a file, or draw them by a generator with a fixed seed"
        )


def _differing_names(values: list[tuple[str, Tensor]], network: nn.Module) -> str:
    """Return the names of parameters and buffers that have other values in a network."""
    compared = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return ", ".join(place for place, value in values if not torch.equal(value, compared[place]))


def _call_problems(name: str, networks: list[nn.Module], images: Tensor, classes: int) -> Iterator[str]:
    """Yield what is wrong with the logits of images. What cannot be differentiated or copied raises."""
    first, again, other = networks
    logits = first(images)
    if logits.shape != (len(images), classes) or not logits.isfinite().all():
        yield f"{name} gives {tuple(logits.shape)}, not finite logits ({len(images)}, {classes})"
    elif not _equal_up_to_rounding(torch.cat([again.eval()(image[None]) for image in images]), logits):
        yield (
            f"{name}: its logits of an image depend on other images, on chance, or on train() and eval(); use "
            "no batch statistics and no dropout"
        )
    elif not _equal_up_to_rounding(first.head(first.features(images)), logits):  # type: ignore[operator]
        yield f"{name}: its logits are not head(features(images))"
    else:
        params = stack.stacked([first, other])
        labels = torch.zeros(len(images), dtype=torch.long)
        stacked_logits = stack.forward(first, params, images.expand(2, *images.shape))
        stack.gradients(list(params.values()), stacked_logits, labels.expand(2, -1))
        record_gradients(first, images, labels)
        copy.deepcopy(first)


def _equal_up_to_rounding(first: Tensor, second: Tensor) -> bool:
    """Return whether logits are equal up to rounding."""
    return bool((first - second).abs().max() <= _CLOSE * (1 + second.abs().max()))


def print_network_problems() -> None:
    """Write the problems of networks that standard input lists, for a dry run, which itself loads no torch."""
    plugins, cases = json.load(sys.stdin)
    for name, target in plugins.items():
        MODELS.add(name, target)
    problems = []
    with redirect_stdout(sys.stderr):
        for dataset, shapes, model, classes, clips, scored in cases:
            answers = [
                network_problems(model, shape and tuple(shape), classes, clips=clips, scored=scored)
                for shape in shapes
            ]
            problems += [f"datasets.{dataset}: {problem}" for problem in min(answers, key=len)]
    sys.stdout.write(json.dumps(problems))
