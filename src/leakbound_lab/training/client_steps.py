"""One step of a client under each defense. Training uses its parts, attackers receive the whole.

A step transforms images, differentiates, weights the gradients of single records, averages, and disguises the
average. Each defense changes one of these.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from leakbound.accounting.leakage import PrivacyEvent
from leakbound.channels.channel import GaussianChannel
from leakbound.channels.compression import PrincipalDirection, principal_direction
from leakbound.channels.covariance import Moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.grid import all_perturbed, perturbed
from leakbound.randomness.sources import NoiseSource, StackedNoise, as_source
from leakbound.registry import load_attribute
from leakbound_lab.config.defenses import (
    DPPSAC,
    DPSGD,
    ChannelDefense,
    ChannelDPSGD,
    Defense,
    GradientCompression,
)
from leakbound_lab.datasets import Split
from leakbound_lab.models import memory
from leakbound_lab.models.gradients import Gradients, constant_gradients
from leakbound_lab.training.batches import FreshInputs, FrozenInputs, Inputs, Members, require_same_form

_Images = Float[Tensor, "*lead colors height width"]
Norms = Float[Tensor, " records"]
Disguise = Callable[[Any, list[Tensor], Any], list[Tensor]]


def row_by_row(disguised: Disguise) -> Disguise:
    """Mark a method ``disguised`` that treats each row of the gradients independently, with one source.

    Training passes it the gradients of all slots at once, with a
    :class:`~leakbound.randomness.sources.StackedNoise`. A method without the mark gets one slot at a time,
    even if it overrides a marked one.
    """
    disguised.row_by_row = True  # type: ignore[attr-defined]
    return disguised


@dataclass(frozen=True)
class Upload:
    """Averaged gradients of several batches as a server receives them.

    Attributes:
        images: Mean image that each gradient was computed on, (n, colors, height, width), noisy under a
            channel.
        gradients: Parameter name to gradients (n, ...) after the defense.
        upload_law: Mean and noise of the uploads where noise differs between coordinates.
    """

    images: Tensor
    gradients: Gradients
    upload_law: "UploadLaw | None" = None


@dataclass(frozen=True)
class UploadLaw:
    """Public mean and noise of an upload, with noise of another variance on each coordinate.

    Attributes:
        mean: Parameter name to what an upload is on average over draws of records.
        variance: Parameter name to its variance over these draws, before noise.
        std: Parameter name to the standard deviation of the noise, > 0.
        longest: Norm, in units of the noise, to which an upload's difference from the mean is shortened.
    """

    mean: Gradients
    variance: Gradients
    std: Gradients
    longest: float

    def whitened(self, gradients: Gradients) -> Gradients:
        """Return differences from the mean in units of the noise."""
        return {name: (value - self.mean[name]) / self.std[name] for name, value in gradients.items()}

    def to(self, dtype: torch.dtype) -> "UploadLaw":
        """Convert to another precision."""
        mean, variance, std = (
            {name: value.to(dtype) for name, value in part.items()}
            for part in (self.mean, self.variance, self.std)
        )
        return UploadLaw(mean, variance, std, self.longest)

    def factors(self, norms: Norms) -> Norms:
        """Return what shortens whitened differences of some norms."""
        return (self.longest / norms.clamp(min=torch.finfo(norms.dtype).tiny)).clamp(max=1.0)


@dataclass(eq=False)
class ClientStep:
    """Step of a client without a defense, or with larger batches.

    Args:
        defense: What the client does against an attacker.
        level: Level of the defense in its own unit, or None without a defense.
        channel: The calibrated channel, for a channel defense only.
        moments: Function that returns mean and covariance of the client's records, for a defense that needs
            them.
        public: Function that returns records that everybody knows, for a defense that needs them.
    """

    defense: Any
    level: Any
    channel: Any = None
    moments: Callable[[], Moments] | None = None
    public: Callable[[], Split] | None = None

    @property
    def keeps_copies(self) -> bool:
        """True if training holds a copy of all members for each of its networks."""
        return False

    def kept_images(self, members: int, block: int) -> int:
        """Return the number of float32 images that training holds for each network.

        Args:
            members: Number of members.
            block: Images for which noise is drawn at once.
        """
        return members if self.keeps_copies else 0

    @property
    def error_feedback(self) -> bool:
        """True if training keeps what :meth:`disguised` left out, and adds it to the next average."""
        return False

    def problems(self, image_shape: tuple[int, int, int]) -> list[str]:
        """List problems with level and channel, for images of a shape (colors, height, width)."""
        if self.channel is not None:
            return [f"a channel ({self.channel.shape}) was given, but {self.defense.mechanism} has none"]
        problem = self.defense.level_problem(self.level, math.prod(image_shape))
        return [] if problem is None else [f"level = {self.level}: {problem}"]

    def released(self, images: _Images, source: NoiseSource) -> _Images:
        """Return the images that gradients are computed on."""
        return images

    def expected(self, images: _Images, source: NoiseSource) -> _Images:
        """Return images as :meth:`released` changes them, but without noise, as far as it is known."""
        return self.released(images, source)

    def inputs(self, images: _Images, rows: Members, sources: Sequence[NoiseSource]) -> Inputs:
        """Return the members as the networks of a stack see them.

        The result of :meth:`released` is drawn for each use, or computed once if the defense draws no noise.

        Args:
            images: Members of all slots.
            rows: Members of each slot, as rows of ``images``.
            sources: Source of noise for each slot.
        """
        if self.defense.draws_noise and type(self).released is not ClientStep.released:
            return Inputs(images, rows, self.released, sources)
        return Inputs(require_same_form(images, self.released(images, sources[0]), self.released), rows)

    def record_weights(self, norms: Norms, slack: float = 0.0) -> Norms:
        """Compute the factors of the records' gradients.

        Args:
            norms: Norms of the gradients.
            slack: Number that is added to a norm before a division by it.
        """
        return torch.ones_like(norms)

    def averaged(self, sums: list[Tensor], size: int, source: NoiseSource) -> list[Tensor]:
        """Average sums over records, and disguise the averages for the upload.

        Args:
            sums: One tensor (n, ...) for each parameter.
            size: Number of records in a sum.
            source: Source of the noise.
        """
        return self.disguised([total / size for total in sums], source)

    def disguised(self, gradients: list[Tensor], source: NoiseSource) -> list[Tensor]:
        """Disguise averaged gradients (n, ...), one tensor for each parameter, for the upload.

        A method that is not marked :func:`row_by_row` gets n = 1 at a time from training and attacks.
        """
        return gradients

    def noise_std(self, size: int) -> float:
        """Return the standard deviation of the noise on each coordinate of an average over ``size``."""
        return 0.0

    @property
    def noise_factor(self) -> Float[np.ndarray, " bands"] | None:
        """First column of C, if steps repeat cyclic batches and their noise is C⁻¹Z, else None."""
        return None

    def law(self, model: nn.Module, params: Mapping[str, Tensor], size: int) -> UploadLaw | None:
        """Return mean and noise of an upload where noise differs between coordinates, or None.

        Args:
            model: Architecture.
            params: Parameter name to its values, those that the server sent.
            size: Records in the upload.
        """
        return None

    def event(self, **counted: Any) -> PrivacyEvent:
        """Return the record of some steps, completed by what the defense did."""
        return PrivacyEvent(mechanism=self.defense.mechanism, **counted)

    def upload(
        self,
        model: nn.Module,
        images: Float[Tensor, "n records colors height width"],
        labels: Int[Tensor, "n records"],
        source: NoiseSource | torch.Generator,
    ) -> Upload:
        """Compute the upload of one first step for each batch, with nothing left over from earlier steps.

        Args:
            model: Network with the weights that the server sent.
            images: n batches of records.
            labels: Classes of the records.
            source: Source of the noise, or a generator, on the device of the images.
        """
        # What the networks see, and the weighted gradients of its records.
        source = as_source(source)
        released = self.released(images, source)
        sums = self._summed(model, released, labels)
        # The average that is sent, of all batches at once if the defense treats rows independently.
        row_by_row = type(self).disguised is ClientStep.disguised or hasattr(self.disguised, "row_by_row")
        rows = zip(*(total.split(len(total) if row_by_row else 1) for total in sums.values()), strict=True)
        uploads = [self.averaged(list(row), labels.shape[1], source) for row in rows]
        sent = [torch.cat(parts) for parts in zip(*uploads, strict=True)]
        return Upload(released.mean(1), dict(zip(sums, sent, strict=True)))

    def _summed(
        self,
        model: nn.Module,
        images: Float[Tensor, "n records colors height width"],
        labels: Int[Tensor, "n records"],
    ) -> Gradients:
        """Sum the weighted gradients of the records of each batch."""
        count, size = labels.shape
        parameters = dict(model.named_parameters())
        at_once = max(1, memory.GRADIENT_BYTES // (4 * sum(value.numel() for value in parameters.values())))
        sums = {name: images.new_zeros(count, *value.shape) for name, value in parameters.items()}
        # Whole batches where memory holds them, else pieces of one batch.
        for batches in torch.arange(count, device=labels.device).split(max(1, at_once // size)):
            for records in torch.arange(size, device=labels.device).split(at_once):
                piece = (batches[:, None], records)
                gradients = constant_gradients(model, images[piece].flatten(0, 1), labels[piece].flatten())
                # Each record is weighted by its own norm over all parameters, before anything is summed.
                squares = [tensor.flatten(1).square().sum(1) for tensor in gradients.values()]
                weights = self.record_weights(torch.stack(squares).sum(0).sqrt())
                for name, tensor in gradients.items():
                    weighted = tensor * weights.view(-1, *[1] * (tensor.ndim - 1))
                    sums[name][batches] += weighted.unflatten(0, (len(batches), len(records))).sum(1)
        return sums


class ChannelStep(ClientStep):
    """Step on images with the noise of a channel."""

    defense: ChannelDefense
    channel: GaussianChannel

    @property
    def keeps_copies(self) -> bool:
        """True for frozen noise."""
        return self.defense.noise == "frozen"

    def problems(self, image_shape: tuple[int, int, int]) -> list[str]:
        """List problems with level and channel."""
        channel = self.channel
        if channel is None or self.level is None:
            return [
                f"level = {self.level}, channel = {channel and channel.shape}: a channel defense needs both"
            ]
        problems = []
        if channel.dimension != math.prod(image_shape):
            problems.append(
                f"the channel has {channel.dimension} dimensions, the images {math.prod(image_shape)} values; "
                "calibrate it on this dataset"
            )
        if channel.shape != self.defense.shape:
            problems.append(
                f"the channel is of shape {channel.shape!r}, the defense of shape {self.defense.shape!r}"
            )
        if channel.capacity != (capacity := self.defense.capacity_at(self.level)):
            stated = "level" if capacity == self.level else "capacity of the defense"
            problems.append(f"a channel calibrated to {channel.capacity} nats, the {stated} is {capacity}")
        if (problem := self.defense.level_problem(self.level)) is not None:
            problems.append(f"level = {self.level}: {problem}")
        return problems

    def kept_images(self, members: int, block: int) -> int:
        """Return the images for copies of all members, or for a block of noise, with its random numbers."""
        return members if self.keeps_copies else 4 * block

    def released(self, images: _Images, source: NoiseSource) -> _Images:
        """Use the channel once for each image."""
        return self._sampler(images, source).apply(images, source)

    def expected(self, images: _Images, source: NoiseSource) -> _Images:
        """Return images before the noise of the channel."""
        return self._sampler(images, source).signal(images).float()

    def inputs(self, images: _Images, rows: Members, sources: Sequence[NoiseSource]) -> Inputs:
        """Return images with fresh noise at each use, or frozen noisy copies."""
        kind = FrozenInputs if self.keeps_copies else FreshInputs
        return kind(images, rows, self._sampler(images, sources[0], many_draws=True), sources)

    def event(self, **counted: Any) -> PrivacyEvent:
        """Return the record of the uses of the channel."""
        noise = self.defense.noise
        return super().event(shape=self.channel.shape, capacity=self.channel.capacity, noise=noise, **counted)

    def _sampler(self, images: _Images, source: NoiseSource, *, many_draws: bool = False) -> ChannelSampler:
        """Return the sampler of the channel on the images' device."""
        shape = (images.shape[-3], images.shape[-2], images.shape[-1])
        return ChannelSampler(
            self.channel, shape, images.device, on_grid=source.secure, many_draws=many_draws
        )


class DroppedDirectionStep(ClientStep):
    """Step on images without one principal direction of the client's records."""

    @cached_property
    def dropped(self) -> PrincipalDirection:
        """The principal direction that is removed."""
        if self.moments is None:
            raise ValueError(
                f"{self.defense.mechanism} drops a principal direction: give the moments of the records"
            )
        return principal_direction(self.moments(), int(self.level))

    def released(self, images: _Images, source: NoiseSource) -> _Images:
        """Return images without the direction."""
        flat = self.dropped.removed_from(images.reshape(-1, *images.shape[-3:]).cpu().numpy())
        return torch.from_numpy(flat).to(images.device).view(images.shape)


class ClippedStep(ClientStep):
    """Step that scales records' gradients g by min(1, S/‖g‖) and adds N(0, (level · S)²) to their sum."""

    defense: DPSGD

    def record_weights(self, norms: Norms, slack: float = 0.0) -> Norms:
        """Compute the factors min(1, S/‖g‖)."""
        return (self.defense.max_grad_norm / (norms + slack)).clamp(max=1.0)

    def averaged(self, sums: list[Tensor], size: int, source: NoiseSource) -> list[Tensor]:
        """Add noise to the sums and average them."""
        std = self.level * self.defense.max_grad_norm
        return [perturbed(total, std, source) / size for total in sums]

    def noise_std(self, size: int) -> float:
        """Return the standard deviation of the noise on the sum, divided by the number of records."""
        return float(self.level * self.defense.max_grad_norm / size)

    def event(self, **counted: Any) -> PrivacyEvent:
        """Return the record of clipping and noise."""
        return super().event(noise_multiplier=self.level, max_grad_norm=self.defense.max_grad_norm, **counted)


class NoisyClippedStep(ChannelStep, ClippedStep):
    """Step of DP-SGD on images with the noise of a channel, whose gradients are clipped after that noise.

    Both noises are independent. Whatever the channel released, a record's gradient is at most S long, so that
    ε is that of DP-SGD. The sums are computed from what the channel released, so that they reveal no more of
    a record than its uses of the channel.
    """

    defense: ChannelDPSGD

    def inputs(self, images: _Images, rows: Members, sources: Sequence[NoiseSource]) -> Inputs:
        """Return images with fresh noise at each use, for drawn records alone, or frozen noisy copies."""
        if self.keeps_copies:
            return super().inputs(images, rows, sources)
        return Inputs(images, rows, self._sampler(images, sources[0], many_draws=True).apply, sources)


class AdaptivelyClippedStep(ClippedStep):
    """Step that scales the records' gradients g by S / (‖g‖ + r / (‖g‖ + r)) and adds the noise of DP-SGD.

    Source:
        Xia et al. 2023, 'Differentially Private Learning with Per-Sample Adaptive Clipping'.
    """

    defense: DPPSAC

    def record_weights(self, norms: Norms, slack: float = 0.0) -> Norms:
        """Compute the factors S / (‖g‖ + r / (‖g‖ + r)). They need no slack, because r > 0.

        The weighted gradient is shorter than S for every ‖g‖, because r / (‖g‖ + r) > 0. So the sensitivity
        is at most S, and noise and accountant are those of DP-SGD.
        """
        r = self.defense.r
        return self.defense.max_grad_norm / (norms + r / (norms + r))


class NoisyAverageStep(ClientStep):
    """Step with noise N(0, level²) on every coordinate of the averaged gradient, whatever the batch size."""

    @row_by_row
    def disguised(self, gradients: list[Tensor], source: NoiseSource | StackedNoise) -> list[Tensor]:
        """Add noise to the averages."""
        return all_perturbed(gradients, self.level, source)

    def noise_std(self, size: int) -> float:
        """Return the level."""
        return float(self.level)


class LargestCoordinatesStep(ClientStep):
    """Step that uploads a fraction ``level`` of the coordinates of the averaged gradient, the largest ones.

    With error feedback, what was not sent is kept and added to the next gradient. All that was sent and what
    is kept then add up to the sum of all gradients. The server applies momentum to what was sent.

    Source:
        Lin et al. 2018, "Deep gradient compression", without momentum correction and warm-up.
    """

    defense: GradientCompression

    @property
    def error_feedback(self) -> bool:
        """The setting of the defense."""
        return self.defense.error_feedback

    @row_by_row
    def disguised(self, gradients: list[Tensor], source: NoiseSource | StackedNoise) -> list[Tensor]:
        """Set all coordinates of the averages to 0 except the largest."""
        kept = keep_largest(torch.cat([gradient.flatten(1) for gradient in gradients], dim=1), self.level)
        pieces = kept.split([gradient[0].numel() for gradient in gradients], dim=1)
        return [piece.view(gradient.shape) for gradient, piece in zip(gradients, pieces, strict=True)]


class UnknownStep(ClientStep):
    """Step of a client whose trainer comes from a plugin and does not state what its uploads are."""

    def upload(self, *_: Any) -> Upload:
        """Refuse to compute an upload.

        Raises:
            ValueError: Always.
        """
        raise ValueError(
            f"the upload of {self.defense.mechanism!r} is not known: state its client_step, or leave out the attack"
        )


def client_step(
    defense: Defense,
    level: float | None,
    channel: GaussianChannel | None = None,
    moments: Callable[[], Moments] | None = None,
    public: Callable[[], Split] | None = None,
) -> ClientStep:
    """Create the step of a client under a defense, of the class that the settings of the defense name.

    Args:
        defense: Settings of the defense.
        level: Level of the defense in its own unit, or None without a defense.
        channel: The calibrated channel, for a channel defense only.
        moments: Function that returns mean and covariance of the client's records.
        public: Function that returns records that everybody knows.
    """
    kind: type[ClientStep] = load_attribute(defense.client_step, f"client step of {defense.mechanism!r}")
    return kind(defense, level, channel, moments, public)


def keep_largest(gradients: Float[Tensor, "n d"], fraction: float) -> Float[Tensor, "n d"]:
    """Set all coordinates of gradients to 0 except those of largest magnitude.

    Args:
        gradients: (n, d), one gradient in each row.
        fraction: Fraction of the coordinates to keep, in (0, 1], rounded to a whole number of at least one.
    """
    largest = gradients.abs().topk(max(1, round(fraction * gradients.shape[1])), dim=1).indices
    return torch.zeros_like(gradients).scatter(1, largest, gradients.gather(1, largest))
