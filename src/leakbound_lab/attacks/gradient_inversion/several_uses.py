"""Error of gradient inversion by the number of uses: fresh noise averages out, frozen noise stays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from leakbound.accounting.gaussian import linear_mmse_from_covariances
from leakbound.channels.channel import GaussianChannel, linear_estimate
from leakbound.channels.covariance import Moments
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.gradient_inversion.closed_form import solvable, solved_images
from leakbound_lab.attacks.gradient_inversion.gradient_matching import problems_at_once
from leakbound_lab.attacks.rows import rows
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.attacks import UsesConfig
from leakbound_lab.models import memory
from leakbound_lab.training.client_steps import ClientStep

_SCALE = 4.0  # squared units of [-1, 1] in one of [0, 1]
_SHUT = 1e12  # noise over signal of an axis that reveals nothing

_PURPOSE = "uses"


@in_full_precision
def invert_several_uses(request: AttackRequest[UsesConfig]) -> Attacked:
    """Estimate members from the gradients of their first k uses of a channel.

    Each upload is solved for the noisy image. The images are averaged, and the best linear estimate is taken
    from a channel with a k-th of the noise. Under frozen noise all uploads of a record are of one noisy
    image. Records, networks and noise of a replica are the same for all k, a larger k holding the smaller
    ones.

    Returns:
        Rows whose unit is k, with metric ``mse``, for ``attack`` and ``prior``, the mean auxiliary image,
        averaged over images, and for ``line``, the error of the best linear estimate in expectation under the
        moments, Σ λσ/(kλ + σ)/d. And the array ``errors`` (replicas, images, numbers of uses).

    Raises:
        ValueError: If the defense is no channel, or no equations lead from the network's gradients to the
            image.

    Source:
        The joint bound of k uses, see errata to Tan et al. 2024, Sec. 5.
    """
    config = request.config
    client = request.client()
    channel = client.channel
    uses = sorted(config.uses)
    counts = [1] * len(uses) if client.keeps_copies else uses
    moments = request.known_moments()
    line = _line(channel, moments, counts)
    prior = request.dataset.aux.images.mean(axis=0)
    results = []
    for replica in request.replicas:
        truth, seen = _attacked_uses(request, replica, client, max(counts))
        errors = np.stack([_errors(truth, seen[:count], channel, moments) for count in uses], axis=1)
        prior_error = float(metrics.mse(truth, np.broadcast_to(prior, truth.shape)).mean())
        variants = {"attack": errors.mean(axis=0), "line": line, "prior": np.full(len(uses), prior_error)}
        tables = [rows(replica, variant, uses, {"mse": values}) for variant, values in variants.items()]
        results.append((pd.concat(tables, ignore_index=True), {"errors": errors}))
    return joined(results)


def _attacked_uses(
    request: AttackRequest[UsesConfig], replica: int, client: ClientStep, uses: int
) -> tuple[metrics.Pictures, Float[np.ndarray, "uses n colors height width"]]:
    """Choose the records of a replica, and solve for the noisy images of each of their uses.

    Raises:
        ValueError: If no equations lead from the network's gradients to the image.
    """
    network = request.untrained(_PURPOSE, replica)
    if not solvable(network, request.image_shape):
        raise ValueError(
            f"{request.slug}: gradients of {request.model} cannot be solved for images; take lenet_sigmoid or mlp"
        )
    members = request.dataset.members(replica)
    order = request.generators(_PURPOSE, replica)("images").permutation(len(members))
    records = members.take(np.sort(order[: request.config.images]))
    images = torch.from_numpy(records.images)[:, None].to(request.device)
    labels = torch.from_numpy(records.labels)[:, None].to(request.device)
    source = request.noise(_PURPOSE, replica)("noise")
    # A GPU solves for several uses at once.
    fitting = problems_at_once(network, request.image_shape, request.device) // len(images)
    at_once = max(1, min(fitting, memory.SEARCHES_SIDE_BY_SIDE.on(request.device)))
    seen: list[Tensor] = []
    for first in range(0, uses, at_once):
        sent = [
            client.upload(network, images, labels, source) for _ in range(first, min(first + at_once, uses))
        ]
        gradients = {
            name: torch.cat([upload.gradients[name] for upload in sent]) for name in sent[0].gradients
        }
        solved = solved_images(network, gradients, request.image_shape)
        seen += solved.split(len(images))
    return records.images, torch.stack(seen).cpu().numpy()


def _errors(
    truth: metrics.Pictures,
    noisy: Float[np.ndarray, "uses n colors height width"],
    channel: GaussianChannel,
    moments: Moments,
) -> Float[np.ndarray, " n"]:
    """Compute the squared error of each image's estimate from some noisy versions."""
    quieter = replace(channel, variances=channel.variances / len(noisy))
    estimates = linear_estimate(noisy.mean(axis=0, dtype=np.float64).astype(np.float32), quieter, moments)
    return metrics.mse(truth, np.clip(estimates, -LARGEST_PIXEL, LARGEST_PIXEL))


def _line(channel: GaussianChannel, moments: Moments, uses: list[int]) -> Float[np.ndarray, " uses"]:
    """Compute the expected error of the best linear estimate, on [0, 1]. Axes that a gain shuts reveal nothing."""
    covariance = moments.covariance
    if channel.basis is not None:
        covariance = channel.basis.T @ covariance @ channel.basis
    gain = np.ones(len(covariance)) if channel.gain is None else channel.gain
    live = (gain > 0) & (channel.variances > 0)
    noise = np.full(len(gain), math.inf)
    noise[live] = channel.variances[live] / gain[live] ** 2
    largest = _SHUT * float(np.diag(covariance).max())
    errors = {
        count: linear_mmse_from_covariances(covariance, noise.clip(max=largest), float(count))
        for count in {*uses}
    }
    return np.array([errors[count] for count in uses]) / _SCALE / len(covariance)
