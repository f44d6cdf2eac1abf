"""Error of gradient inversion against the number of uses of a channel: fresh noise averages out, frozen noise stays."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound import metrics
from leakbound.accounting.gaussian import linear_mmse_from_covariances
from leakbound.attacks.gradient_inversion.closed_form import Solving, solvable
from leakbound.attacks.gradient_inversion.searches import Attacker, attacked
from leakbound.attacks.images import LARGEST_PIXEL, rows
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments
from leakbound.channels.estimation import linear_estimate
from leakbound.config.attacks import UsesConfig
from leakbound.config.defenses import Defense
from leakbound.datasets import ImageDataset
from leakbound.models import build
from leakbound.randomness.origin import PrivacyNoise
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound.training.client_steps import ClientStep, client_step
from leakbound.training.precision import in_full_precision

_SCALE = 4.0  # squared units of [-1, 1] in one of [0, 1]
_SHUT = 1e12  # noise over signal of an axis that tells nothing


@in_full_precision
def attack(
    *,
    model: str,
    dataset: ImageDataset,
    channel: GaussianChannel | None,
    moments: Moments,
    defense: Defense,
    level: float | None,
    config: UsesConfig,
    seed: int,
    slug: str,
    replicas: int = 1,
    privacy_noise: PrivacyNoise = "seeded",
    device: str | torch.device = "cpu",
) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    """Estimate members from the gradients of their first k uses of a channel.

    Each upload is solved for the noisy image; the images are averaged, and the best linear estimate is taken from a
    channel with a k-th of the noise. Under frozen noise all uploads of a record are of one noisy image. Records,
    networks and noise of a replica are the same for all k, a larger k holding the smaller ones.

    Returns:
        Rows whose unit is k: metric ``mse``, the mean over images, of ``attack`` and of ``prior``, the mean auxiliary
        image; and ``line``, the error of the best linear estimate in expectation under the moments, Σ λσ/(kλ + σ)/d.
        And ``errors`` (replicas, images, numbers of uses).

    Raises:
        ValueError: If the defense is no channel, or no equations lead from the network's gradients to the image.

    Source:
        The joint bound of k uses; errata to Tan et al. 2024, Sec. 5.
    """
    client, uses = client_step(defense, level, channel), sorted(config.uses)
    shape = (dataset.colors, *dataset.aux.images.shape[2:])
    problems = client.problems(shape) if channel is not None else [f"{defense.mechanism} is no channel; uses are its"]
    if problems or channel is None:
        raise ValueError("\n".join(f"{slug}: {problem}" for problem in problems))
    frozen = client.keeps_copies
    line = _line(channel, moments, [1 if frozen else count for count in uses])
    scenes, looks = [], 1 if frozen else max(uses)
    for replica in range(replicas):
        words = (dataset.name, "uses", replica)
        network = build(
            model, dataset.colors, len(dataset.classes), torch_generator(seed, *words, model, "network"), dataset.side
        )
        if not solvable(network, shape):
            raise ValueError(f"{slug}: gradients of {model} cannot be solved for images; take lenet_sigmoid or mlp")
        members = dataset.members(replica)
        chosen = np.sort(numpy_generator(seed, *words, "images").permutation(len(members))[: config.images])
        images, labels = (torch.from_numpy(one[chosen])[:, None] for one in (members.images, members.labels))
        source = noise_source(privacy_noise, seed, *words, "noise", device=device)
        scenes.append(_Scene(network.to(device).eval(), client, images.to(device), labels.to(device), source))
    attackers = [scene.look() for scene in scenes for _ in range(looks)]
    like = partial(build, model, dataset.colors, len(dataset.classes), torch.Generator(), dataset.side)
    found = attacked(attackers, device, like, config.images)
    tables, errors = [], []
    for replica, scene in enumerate(scenes):
        truth, prior = scene.images[:, 0].cpu().numpy(), dataset.aux.images.mean(axis=0)
        seen = np.stack(found[replica * looks : (replica + 1) * looks])
        own = np.stack([_errors(truth, seen[:count], channel, moments) for count in uses], axis=1)
        known = float(metrics.mse(truth, np.broadcast_to(prior, truth.shape)).mean())
        for variant, values in (("attack", own.mean(axis=0)), ("line", line), ("prior", np.full(len(uses), known))):
            tables.append(rows(replica, variant, uses, {"mse": np.asarray(values, dtype=np.float64)}))
        errors.append(own)
    return pd.concat(tables, ignore_index=True), {"errors": np.stack(errors)}


@dataclass(frozen=True)
class _Scene:
    """Network, client and records of one replica, and the source of all its noise.

    Images (n, 1, colors, height, width) and labels (n, 1) are batches of one record.
    """

    network: nn.Module
    client: ClientStep
    images: Float[Tensor, "n 1 colors height width"]
    labels: Int[Tensor, "n 1"]
    source: NoiseSource

    def look(self) -> Attacker[Float[np.ndarray, "n colors height width"]]:
        """Attacker on one use of each record, whose noise is drawn as it begins: noisy images."""
        sent = self.client.upload(self.network, self.images, self.labels, self.source)
        colors, height, width = self.images.shape[2:]
        solved: Tensor = yield Solving(self.network, sent.gradients, (colors, height, width))
        return solved.cpu().numpy()


def _errors(
    truth: Float[np.ndarray, "n colors height width"],
    found: Float[np.ndarray, "uses n colors height width"],
    channel: GaussianChannel,
    moments: Moments,
) -> Float[np.ndarray, " n"]:
    """Squared error of each image's estimate from some noisy versions."""
    quieter = replace(channel, variances=channel.variances / len(found))
    estimates = linear_estimate(found.mean(axis=0, dtype=np.float64).astype(np.float32), quieter, moments)
    return metrics.mse(truth, np.clip(estimates, -LARGEST_PIXEL, LARGEST_PIXEL))


def _line(channel: GaussianChannel, moments: Moments, uses: list[int]) -> Float[np.ndarray, " uses"]:
    """Expected error of the best linear estimate, on the scale [0, 1]; axes that a gain shuts tell nothing."""
    covariance = moments.covariance
    if channel.basis is not None:
        covariance = channel.basis.T @ covariance @ channel.basis
    gain = np.ones(len(covariance)) if channel.gain is None else channel.gain
    live = (gain > 0) & (channel.variances > 0)
    noise = np.full(len(gain), math.inf)
    noise[live] = channel.variances[live] / gain[live] ** 2
    largest = _SHUT * float(np.diag(covariance).max())
    errors = {
        count: linear_mmse_from_covariances(covariance, noise.clip(max=largest), float(count)) for count in {*uses}
    }
    return np.array([errors[count] for count in uses]) / _SCALE / len(covariance)
