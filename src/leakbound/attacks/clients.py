"""What a client uploads for a single record under each defense, and what can be told of the record at best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg
from torch import Tensor, nn

from leakbound.channels import Channel, Moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.config import DPPSAC, DPSGD, ChannelDefense, Defense, Undefended
from leakbound.training.gradients import Gradients, psac_weights, record_gradients

_NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Upload:
    """Gradients of single records as a server receives them.

    Attributes:
        images: What the gradients were computed on, (n, colors, height, width): noisy under a channel.
        gradients: Parameter name to gradients (n, ...), clipped and noisy under DP.
    """

    images: Tensor
    gradients: Gradients


def upload(
    model: nn.Module,
    images: Float[Tensor, "n colors height width"],
    labels: Int[Tensor, " n"],
    *,
    defense: Defense,
    level: float | None,
    channel: Channel | None,
    generator: torch.Generator,
) -> Upload:
    """One step of a client for each record on its own (batch size 1).

    A channel adds noise to the image. DP-SGD scales the gradient g by min(1, S/‖g‖), DP-PSAC by
    S / (‖g‖ + r/(‖g‖ + r)), and both add N(0, (level · S)²) to every coordinate.

    Args:
        model: Network with the weights that the server sent.
        images: Records.
        labels: Their classes.
        defense: What the client does.
        level: Capacity κ of the channel, or noise multiplier under DP; None without a defense.
        channel: The calibrated channel, needed for a channel defense only.
        generator: Source of the noise, on the device of the images.

    Raises:
        ValueError: If the defense is a trainer from outside, whose upload is not known here, or lacks its channel or
            its noise multiplier, or the channel is of another shape or capacity.
    """
    if isinstance(defense, ChannelDefense):
        if channel is None:
            raise ValueError(f"defense of shape {defense.shape!r}: its channel is missing; calibrate and give it")
        if (channel.shape, channel.capacity) != (defense.shape, level):
            raise ValueError(
                f"a channel of shape {channel.shape!r} and {channel.capacity} nats for a defense of shape "
                f"{defense.shape!r} at level {level}: give the channel that the client uses"
            )
        _, colors, height, width = images.shape
        images = ChannelSampler(channel, (colors, height, width), images.device).apply(images, generator)
    elif not isinstance(defense, Undefended | DPSGD):
        raise ValueError(f"gradient inversion knows no upload of {defense.mechanism!r}; leave the attack out there")
    gradients = record_gradients(model, images, labels)
    if isinstance(defense, DPSGD):
        if level is None:
            raise ValueError(f"{defense.mechanism} needs its noise multiplier as level, 0 for clipping alone")
        gradients = _privatized(gradients, defense, level, generator)
    return Upload(images, gradients)


def _privatized(gradients: Gradients, defense: DPSGD, level: float, generator: torch.Generator) -> Gradients:
    """Clipped gradients with Gaussian noise."""
    bound = defense.max_grad_norm
    norms = torch.stack([tensor.flatten(1).square().sum(1) for tensor in gradients.values()]).sum(0).sqrt()
    clipped = (bound / norms).clamp(max=1.0)
    factors = psac_weights(norms, bound, defense.r) if isinstance(defense, DPPSAC) else clipped
    return {
        name: tensor * factors.view(-1, *[1] * (tensor.ndim - 1))
        + level * bound * torch.randn(tensor.shape, generator=generator, device=tensor.device)
        for name, tensor in gradients.items()
    }


def linear_estimate(
    released: Float[np.ndarray, "n colors height width"], channel: Channel, moments: Moments
) -> Float[np.ndarray, "n colors height width"]:
    """Best linear estimate of records from their noisy versions: E[D] + Cov(D, D̃) Cov(D̃)⁻¹ (D̃ - E[D̃]).

    With Gaussian data it is the posterior mean, and no attack on anything computed from D̃ does better. With any data
    its mean squared error is Σ λσ/(λ + σ) for additive noise along the principal axes.

    Args:
        released: Noisy records D̃.
        channel: What they came from.
        moments: Mean and covariance of the records.

    Returns:
        Estimates, float32, not clipped to the box.

    Raises:
        ValueError: If channel, moments and images differ in dimension.
    """
    if not channel.dimension == moments.dimension == released[0].size:
        raise ValueError(
            f"images of {released[0].size} values, a channel for {channel.dimension}, moments of {moments.dimension}; "
            "take all three from one dataset"
        )
    basis, mean = channel.basis, moments.mean
    gain = np.ones(len(mean)) if channel.gain is None else channel.gain
    centre = mean if channel.mean is None else channel.mean
    signal = moments.covariance if basis is None else basis.T @ moments.covariance @ basis
    total = gain[:, None] * signal * gain + np.diag(channel.variances)
    # Axes in which nothing varies tell nothing, and would make Cov(D̃) singular.
    live = np.diag(total) > _NEGLIGIBLE * np.diag(total).max()
    expected = _along(centre[None], basis) + gain * _along((mean - centre)[None], basis)
    observed = _along(released.reshape(len(released), -1).astype(np.float64), basis) - expected
    factor = linalg.cho_factor(total[np.ix_(live, live)], lower=True)
    weights = linalg.cho_solve(factor, observed[:, live].T).T
    estimate = (weights * gain[live]) @ signal[live]
    pixels = estimate if basis is None else estimate @ basis.T
    return (mean + pixels).reshape(released.shape).astype(np.float32)


def _along(records: Float[np.ndarray, "n d"], basis: Float[np.ndarray, "d d"] | None) -> Float[np.ndarray, "n d"]:
    """Coordinates along the columns of ``basis``; the pixels themselves without one."""
    return records if basis is None else records @ basis
