"""What a client uploads for a batch of records under each defense, and what can be told of the records at best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg
from torch import Tensor, nn

from leakbound.channels.channel import Channel
from leakbound.channels.compression import PrincipalDirection, principal_direction
from leakbound.channels.covariance import Moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.config.defenses import (
    DPPSAC,
    DPSGD,
    ChannelDefense,
    Compression,
    Defense,
    GradientCompression,
    LargeBatch,
    ParameterNoise,
    Undefended,
)
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.registry import MECHANISMS
from leakbound.training.gradients import Gradients, psac_weights, record_gradients
from leakbound.training.transforms import keep_largest

_NEGLIGIBLE = 1e-12
_GRADIENT_BYTES = 2**30  # for the gradients of single records; a larger batch is summed in parts


@dataclass(frozen=True)
class Upload:
    """Averaged gradients of some batches as a server receives them.

    Attributes:
        images: Mean of what each gradient was computed on, (n, colors, height, width): noisy under a channel.
        gradients: Parameter name to gradients (n, ...), as the defense leaves them.
    """

    images: Tensor
    gradients: Gradients


@dataclass(frozen=True)
class Client:
    """A client that computes one gradient of each batch.

    Attributes:
        defense: What it does against an attacker.
        level: As the defense means it; None without a defense.
        channel: The calibrated channel, for a channel defense only.
        dropped: The principal direction that compression drops, for it only.

    Raises:
        ValueError: If the defense is a trainer from outside, whose upload is not known here, cannot have the level, or
            lacks its channel or direction, or the channel is of another shape or capacity.
    """

    defense: Defense
    level: float | None
    channel: Channel | None = None
    dropped: PrincipalDirection | None = None

    def __post_init__(self) -> None:
        """Check that the upload is known."""
        defense, level, channel = self.defense, self.level, self.channel
        if defense.mechanism not in MECHANISMS.builtin:
            raise ValueError(f"gradient inversion knows no upload of {defense.mechanism!r}; leave the attack out there")
        if isinstance(defense, ChannelDefense):
            if channel is None:
                raise ValueError(f"defense of shape {defense.shape!r}: its channel is missing; calibrate and give it")
            if (channel.shape, channel.capacity) != (defense.shape, level):
                raise ValueError(
                    f"a channel of shape {channel.shape!r} and {channel.capacity} nats for a defense of shape "
                    f"{defense.shape!r} at level {level}: give the channel that the client uses"
                )
        if (problem := defense.level_problem(level)) is not None:
            raise ValueError(f"level = {level}: {problem}")
        if isinstance(defense, Compression) and (self.dropped is None or self.dropped.index != level):
            raise ValueError(f"compression at level {level}: its principal direction is missing or another one")

    @classmethod
    def of(cls, defense: Defense, level: float | None, channel: Channel | None, moments: Moments) -> Client:
        """The client of a run on records with the given moments."""
        drops = isinstance(defense, Compression) and level is not None
        return cls(defense, level, channel, principal_direction(moments, int(level or 0)) if drops else None)

    def upload(
        self,
        model: nn.Module,
        images: Float[Tensor, "n records colors height width"],
        labels: Int[Tensor, "n records"],
        source: NoiseSource | torch.Generator,
    ) -> Upload:
        """One step of the client for each batch of B records.

        A channel adds noise to every image, compression drops a direction of it. DP-SGD scales the gradient g of a
        record by min(1, S/‖g‖), DP-PSAC by S / (‖g‖ + r/(‖g‖ + r)), and both add N(0, (level · S)²) to every coordinate
        of the sum before they divide by B. Parameter noise adds N(0, level²) to the mean, whatever B is. Gradient
        compression sends the largest coordinates of the mean; in a first step nothing is left over from one before.

        Args:
            model: Network with the weights that the server sent.
            images: Batches of records.
            labels: Their classes.
            source: Of the noise, or a generator, on the device of the images.
        """
        size, level, source = labels.shape[1], self.level or 0.0, as_source(source)
        released = self._released(images, source)
        sums = self._summed(model, released, labels)
        if isinstance(self.defense, DPSGD):
            sums = _noisy(sums, level * self.defense.max_grad_norm, source)
        gradients = {name: tensor / size for name, tensor in sums.items()}
        if isinstance(self.defense, ParameterNoise):
            gradients = _noisy(gradients, level, source)
        if isinstance(self.defense, GradientCompression):
            gradients = _largest(gradients, level)
        return Upload(released.mean(1), gradients)

    def oracle(
        self, released: Float[np.ndarray, "n colors height width"], moments: Moments
    ) -> Float[np.ndarray, "n colors height width"] | None:
        """Best linear estimate of the mean images of batches, by who knows what their gradients were computed on.

        The mean of B noisy images has a B-th of the covariance of one, both of signal and of noise, so the estimate is
        that from one image. An image without one principal direction is its own best estimate. None under defenses that
        leave images alone and disguise gradients.

        Args:
            released: Mean of what the gradient of each batch was computed on.
            moments: Mean and covariance of the records.
        """
        if self.channel is not None:
            return linear_estimate(released, self.channel, moments)
        return released if isinstance(self.defense, Undefended | LargeBatch | Compression) else None

    def _released(
        self, images: Float[Tensor, "n records colors height width"], source: NoiseSource
    ) -> Float[Tensor, "n records colors height width"]:
        """What the gradients are computed on."""
        if self.dropped is not None:
            flat = self.dropped.removed_from(images.flatten(0, 1).cpu().numpy())
            return torch.from_numpy(flat).to(images.device).view(images.shape)
        if self.channel is None:
            return images
        colors, height, width = images.shape[2:]
        sampler = ChannelSampler(self.channel, (colors, height, width), images.device, on_grid=source.secure)
        return sampler.apply(images, source)

    def _summed(
        self,
        model: nn.Module,
        images: Float[Tensor, "n records colors height width"],
        labels: Int[Tensor, "n records"],
    ) -> Gradients:
        """Sum over each batch of its records' gradients, clipped under DP."""
        count, size = labels.shape
        parameters = dict(model.named_parameters())
        at_once = max(1, _GRADIENT_BYTES // (4 * sum(value.numel() for value in parameters.values())))
        sums = {name: images.new_zeros(count, *value.shape) for name, value in parameters.items()}
        for batches in torch.arange(count).split(max(1, at_once // size)):
            for records in torch.arange(size).split(at_once):
                part = (batches[:, None], records)
                gradients = record_gradients(model, images[part].flatten(0, 1), labels[part].flatten())
                weights = self._weights(gradients)
                for name, tensor in gradients.items():
                    weighted = tensor * weights.view(-1, *[1] * (tensor.ndim - 1))
                    sums[name][batches] += weighted.unflatten(0, (len(batches), len(records))).sum(1)
        return sums

    def _weights(self, gradients: Gradients) -> Float[Tensor, " records"]:
        """Factor of each record's gradient: 1, or what DP makes of its norm."""
        norms = torch.stack([tensor.flatten(1).square().sum(1) for tensor in gradients.values()]).sum(0).sqrt()
        if not isinstance(self.defense, DPSGD):
            return torch.ones_like(norms)
        bound = self.defense.max_grad_norm
        clipped = (bound / norms).clamp(max=1.0)
        return psac_weights(norms, bound, self.defense.r) if isinstance(self.defense, DPPSAC) else clipped


def _noisy(gradients: Gradients, noise_std: float, source: NoiseSource) -> Gradients:
    """Gradients with independent Gaussian noise on every coordinate."""
    return {name: perturbed(tensor, noise_std, source) for name, tensor in gradients.items()}


def _largest(gradients: Gradients, fraction: float) -> Gradients:
    """The largest coordinates of each gradient over all parameters, the others 0."""
    kept = keep_largest(torch.cat([tensor.flatten(1) for tensor in gradients.values()], dim=1), fraction)
    parts = kept.split([tensor[0].numel() for tensor in gradients.values()], dim=1)
    return {name: part.view(tensor.shape) for (name, tensor), part in zip(gradients.items(), parts, strict=True)}


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
