"""The least error of any reconstruction of a record from one upload, by van Trees' inequality.

It is no attack, but is evaluated like one. What is assumed of the record is the prior of
:mod:`leakbound.accounting.van_trees`, made of the auxiliary records, which are public. The attacker may know the
label, the weights, and all other records of the batch.

Behind a channel the upload is computed from X + ξ, so that its information about X is at most that of X + ξ,
whatever the network. A Jacobian of the network could only say by how much less, and that to first order in the
noise, so it is not used there. Where noise is on the gradient, the information is that of the Jacobian of the
clipped gradient with respect to the record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import linalg
from torch import Tensor, nn
from torch.func import vmap

from leakbound.accounting.gaussian import clip_eigenvalues
from leakbound.accounting.reconstruction import whiten
from leakbound.accounting.van_trees import unknown_share, van_trees_error
from leakbound.channels.channel import GaussianChannel
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.rows import row, table_of
from leakbound_lab.config.attacks import VanTreesConfig
from leakbound_lab.datasets import Split
from leakbound_lab.models.gradients import record_gradients
from leakbound_lab.training.client_steps import ClientStep

_vjp: Any = torch.func.vjp  # whose types have a third result, which only auxiliary outputs add
_PURPOSE = "van_trees"
_TANGENTS = 32  # directions differentiated at once
_SQUARED_RANGE = 4.0  # pixels are on [-1, 1], and errors are stated on [0, 1]
_KINKS = (
    *("Relu", "MaxPool", "Max", "Min", "Abs", "Clamp", "Threshold"),
    *("Hardtanh", "Hardsigmoid", "Hardswish", "Sort"),
)


@in_full_precision
def bound_errors(request: AttackRequest[VanTreesConfig]) -> Attacked:
    """Compute the least mean squared error of any reconstruction of a record from one upload, over the prior.

    Args:
        request: Arguments of the attack. Weights, and what belongs to them, are not used, and neither are members.

    Returns:
        Rows with unit −1 and variant ``van_trees``: ``mse``, the bound for each pixel on the scale [0, 1], 0 for
        a defense without noise, and ``unknown_share``, s of the prior. No arrays.

    Raises:
        ValueError: If the noise of the defense is not normal with one known variance, or is on the gradient of a
            network with kinks, whose gradient jumps.

    Source:
        Gill and Levit 1995, "Applications of the van Trees inequality".
    """
    client = request.client()
    config = request.config
    prior = Prior.of(request.dataset.aux, config.share)
    values = np.prod(request.image_shape)

    def stated(error: float) -> list[dict[str, object]]:
        """Make the rows of a replica from the error summed over pixels."""
        mse = row("van_trees", "mse", error / (_SQUARED_RANGE * float(values)))
        return [mse, row("van_trees", "unknown_share", prior.share)]

    if client.channel is not None:
        # The same for all replicas, as it depends on no network.
        records = stated(_behind_channel(client.channel, prior))
        return joined((table_of(replica, records), {}) for replica in request.replicas)
    if not client.noise_std(request.batch_size):
        return joined((table_of(replica, stated(0.0)), {}) for replica in request.replicas)
    return joined(
        (table_of(replica, stated(_behind_noisy_gradient(request, client, prior, replica))), {})
        for replica in request.replicas
    )


@dataclass(frozen=True)
class Prior:
    """Blend of public records with normal noise of their covariance.

    Attributes:
        public: The public records.
        share: s, share of the variance that is noise, in [0, 1].
    """

    public: Split
    share: float

    @classmethod
    def of(cls, public: Split, share: float | None) -> Prior:
        """Make the prior of public records, with the share that these leave of each other unless one is given."""
        return cls(public, unknown_share(public.images.reshape(len(public), -1)) if share is None else share)

    @cached_property
    def principal(self) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """Variances of the public records along their principal axes, descending, and the axes as columns."""
        centred = self.public.images.reshape(len(self.public), -1).astype(np.float64)
        centred -= centred.mean(axis=0)
        variances, axes = linalg.eigh(centred.T @ centred / len(centred), driver="evd", overwrite_a=True)
        return clip_eigenvalues(variances)[::-1].copy(), np.ascontiguousarray(axes[:, ::-1])

    def draws(self, count: int, generator: np.random.Generator) -> Split:
        """Draw records. Values beyond the range of pixels are not clipped, because the prior has no edges."""
        variances, axes = self.principal
        records = self.public.take(generator.choice(len(self.public), count))
        mean = self.public.images.mean(axis=0)
        noise = (generator.standard_normal((count, len(variances))) * np.sqrt(variances)) @ axes.T
        blended = math.sqrt(1 - self.share) * (records.images - mean) + math.sqrt(self.share) * noise.reshape(
            records.images.shape
        )
        return Split((mean + blended).astype(np.float32), records.labels)


def _behind_channel(channel: GaussianChannel, prior: Prior) -> float:
    """Bound the error, summed over pixels, of anything computed from a record behind a channel."""
    variances, axes = prior.principal
    seen = whiten(axes.T, channel.variances, channel.basis, channel.gain)
    return van_trees_error(prior.share * variances, seen @ seen.T)


def _behind_noisy_gradient(
    request: AttackRequest[VanTreesConfig], client: ClientStep, prior: Prior, replica: int
) -> float:
    """Bound the error, summed over pixels, of an attacker who sees the noisy gradient of a batch.

    Only the errors along the leading axes of the prior are counted.
    """
    config = request.config
    network = request.untrained(_PURPOSE, replica)
    if kinks := kinks_of(network, request.image_shape):
        raise ValueError(
            f"{request.slug}: van_trees needs a network whose gradient does not jump where noise is on it; "
            f"{request.model} has {', '.join(kinks)}: take one with smooth activations and without max-pooling, "
            "e.g. lenet_sigmoid"
        )
    all_variances, all_axes = prior.principal
    variances = prior.share * all_variances[: config.axes]
    axes = all_axes[:, : config.axes]
    records = prior.draws(config.draws, request.generators(_PURPOSE, replica)("records"))
    directions = torch.from_numpy(axes.astype(np.float32)).to(request.device)
    pieces = list(_information(network, client, records, directions, request.batch_size))
    halves = [np.mean(pieces[half::2], axis=0) for half in range(2)]
    # Each half chooses the matrix that the bound of the other one has free.
    folds = [van_trees_error(variances, halves[fold], halves[1 - fold]) for fold in range(2)]
    return max(0.0, float(np.mean(folds)))


def _information(
    network: nn.Module, client: ClientStep, records: Split, directions: Float[Tensor, "d axes"], size: int
) -> Iterator[Float[np.ndarray, "axes axes"]]:
    """Yield the Fisher information of a noisy gradient about each of some records, along some directions.

    Args:
        network: The network.
        client: Step of the client.
        records: The records.
        directions: Orthonormal columns.
        size: Records in the batch, all but one of them known.
    """
    images, labels = (
        torch.from_numpy(part).to(directions.device) for part in (records.images, records.labels)
    )
    axes = torch.eye(directions.shape[1], device=directions.device)
    for image, label in zip(images, labels, strict=True):

        def sent(moved: Tensor, image: Tensor = image, label: Tensor = label) -> Tensor:
            """Compute the record's part of the upload, moved along the directions."""
            moved_image = image + (directions @ moved).view(image.shape)
            gradients = record_gradients(network, moved_image[None], label[None])
            flat = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)
            return (client.record_weights(flat.norm(dim=1))[:, None] * flat)[0] / size

        # The pullback is linear in what it pulls back, and its own pullback is the Jacobian.
        upload, pulled = _vjp(sent, torch.zeros_like(axes[0]))
        _, pushed = _vjp(lambda weights, pulled=pulled: pulled(weights)[0], torch.zeros_like(upload))
        jacobian = vmap(lambda axis, pushed=pushed: pushed(axis)[0], chunk_size=_TANGENTS)(axes)
        jacobian = jacobian.detach().double() / client.noise_std(size)
        yield (jacobian @ jacobian.T).cpu().numpy()


def kinks_of(network: nn.Module, image_shape: tuple[int, int, int]) -> list[str]:
    """List the operations of a network with a slope that jumps, by their names in autograd.

    Args:
        network: The network.
        image_shape: (colors, height, width).
    """
    parameter = next(network.parameters())
    logits = network(torch.zeros(1, *image_shape, device=parameter.device, dtype=parameter.dtype))
    waiting = [logits.grad_fn]
    seen = set()
    kinks = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().partition("Backward")[0]
        if any(kink in name for kink in _KINKS):
            kinks.add(name)
        waiting += [following for following, _ in node.next_functions]
    return sorted(kinks)
