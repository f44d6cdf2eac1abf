"""Model inversion: optimise an image until a trained network gives it a label, and compare it with the class mean.

The paper's metric alone misleads: it measures how far the attack walks from its start, and 600 steps walk farther on
a noisier landscape. So every result stands beside its start, beside what the attacker knew without the model
(``aux_mean``), and beside an attacker who holds pixels within [-1, 1], smooths the result and stops in time.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call

from leakbound.attacks.images import LARGEST_PIXEL, image_values, rows, total_variation
from leakbound.config.attacks import ModelInversionConfig
from leakbound.datasets import ImageDataset, Split
from leakbound.models import build
from leakbound.randomness.seeding import torch_generator
from leakbound.training.stack import finite_slots


def attack(
    weights: Mapping[str, Tensor],
    *,
    replicas: Sequence[int],
    model: str,
    dataset: ImageDataset,
    config: ModelInversionConfig,
    seed: int,
    slug: str,
    device: str | torch.device = "cpu",
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Invert every class of every replica, from the mean auxiliary image.

    Variants: ``printed`` is the paper's attack (cross-entropy alone, no constraint, the last iterate). ``tuned`` adds
    the range of pixels and total variation, and chooses its weight and the moment to stop for each replica and class:
    those that come nearest to the mean of the class's auxiliary records, which it owns. It never sees a member.
    ``start`` and ``aux_mean`` are controls that need no model: the mean auxiliary image, and the auxiliary mean of the
    class.

    The truth of a class is the mean of the replica's members of it; ``aux`` is the attacker's. Arguments are those of
    :mod:`leakbound.attacks`; the attack draws nothing that would show.

    Returns:
        Rows, the unit being a class that has members: ``mse``,
        ``psnr``, ``ssim`` and ``cosine`` for every variant, and ``gain`` = MSE of the start - MSE for both attacks.
        All values of a replica with weights that are not finite are NaN. And the images of the first replica by
        variant, (classes, colors, 32, 32), with ``truth``.

    Source:
        Tan et al. 2024, Sec. 6.1 (attack and metric).
    """
    present = sorted(set(dataset.pool.labels.tolist()))
    known = class_means(dataset.aux, present)
    start = np.broadcast_to(dataset.aux.images.mean(axis=0), known.shape).astype(np.float32)
    controls = {"start": start, "aux_mean": known}
    generator = torch_generator(seed, dataset.name, "model_inversion")
    network = build(model, dataset.colors, len(dataset.classes), generator).to(device).eval()
    classes, settings, moments = len(present), len(config.tv_weights), stopping_times(config)
    tv_weights = torch.tensor([0.0, *config.tv_weights], device=device).repeat_interleave(classes)
    bounds = torch.tensor([math.inf] + [LARGEST_PIXEL] * settings, device=device).repeat_interleave(classes)
    images = torch.from_numpy(start).to(device).repeat(1 + settings, 1, 1, 1)
    labels, rate = torch.tensor(present, device=device).repeat(1 + settings), config.learning_rate
    tables: list[pd.DataFrame] = []
    pictures: dict[str, np.ndarray] = {}
    for row, (replica, finite) in enumerate(zip(replicas, finite_slots(weights), strict=True)):
        members = dataset.members(replica)
        truth, held = class_means(members, present), np.isin(present, members.labels)
        reference = image_values(truth, start)["mse"]
        parameters = {name: tensor[row].to(device) for name, tensor in weights.items()}
        trace = invert(
            network, parameters, labels, images, tv_weights, bounds=bounds, learning_rate=rate, moments=moments
        )
        iterates = trace.cpu().numpy().reshape(len(moments), 1 + settings, *start.shape)
        tried = iterates[:, 1:].reshape(-1, *start.shape)
        nearest = ((tried - known) ** 2).mean(axis=(-3, -2, -1)).argmin(axis=0)
        found = {"printed": iterates[-1, 0], "tuned": tried[nearest, np.arange(classes)]}
        for variant, restored in {**found, **controls}.items():
            values = image_values(truth, restored if finite else np.full_like(restored, np.nan))
            if variant in found:
                values["gain"] = reference - values["mse"]
            own = {name: value[held] for name, value in values.items()}
            tables.append(rows(replica, variant, np.array(present)[held].tolist(), own))
        if row == 0:
            pictures = {"truth": truth, **found, **controls}
    return pd.concat(tables, ignore_index=True), pictures


def stopping_times(config: ModelInversionConfig) -> list[int]:
    """Iterations at which the tuned attacker may stop, ascending: all of them, half, a quarter, and so on.

    They lie on a geometric grid because the best moment is often an early one.
    """
    return sorted({max(1, config.iterations // 2**halvings) for halvings in range(config.checkpoints)})


def invert(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    labels: Int[Tensor, " n"],
    start: Float[Tensor, "n colors height width"],
    tv_weights: Float[Tensor, " n"],
    *,
    bounds: Float[Tensor, " n"],
    learning_rate: float,
    moments: list[int],
) -> Float[Tensor, "moments n colors height width"]:
    """Minimise cross-entropy + weight · TV over each image by Adam, and keep the iterates at some moments.

    Adam works pixel by pixel, so the images of a batch do not influence each other.

    Args:
        model: Network.
        parameters: Its parameters.
        labels: Class that each image is driven to.
        start: First iterates.
        tv_weights: Weight of the total variation of each image, >= 0.
        bounds: Largest absolute pixel value that each image may take, infinite for no constraint.
        learning_rate: Adam's.
        moments: Iteration numbers, ascending and >= 1; the last one ends the optimisation.

    Returns:
        Iterates after each of ``moments``.
    """
    images = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([images], lr=learning_rate)
    limits = bounds[:, None, None, None]
    kept: list[Tensor] = []
    for iteration in range(1, moments[-1] + 1):
        logits = functional_call(model, dict(parameters), (images,))
        objective = F.cross_entropy(logits, labels, reduction="sum") + tv_weights @ total_variation(images)
        (images.grad,) = torch.autograd.grad(objective, images)
        optimizer.step()
        with torch.no_grad():
            images.clamp_(-limits, limits)
        if iteration in moments:
            kept.append(images.detach().clone())
    return torch.stack(kept)


def class_means(split: Split, classes: list[int]) -> Float[np.ndarray, "k colors height width"]:
    """Mean image of each class; that of the whole split for a class which has no record in it."""
    chosen = [split.images[split.labels == label] for label in classes]
    return np.stack([(images if len(images) else split.images).mean(axis=0) for images in chosen])
