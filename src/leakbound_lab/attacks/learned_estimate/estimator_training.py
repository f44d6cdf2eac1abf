"""Training of the learned estimate on the attacker's own records, through simulated channels.

The linear estimate is better on the records that its covariance comes from than on others. So the records are
split, and each part is seen through moments of the others. In this way the network meets the errors that it
will meet on members.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg
from torch import Tensor

from leakbound.accounting.gaussian import clip_eigenvalues
from leakbound.channels.channel import GaussianChannel, Spectrum
from leakbound.channels.covariance import Moments, estimate_moments
from leakbound.channels.shapes import shape_named
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound_lab.attacks.learned_estimate.estimator import (
    ChannelView,
    Denoiser,
    Estimator,
    Family,
    in_bands,
    profile_of,
    relative,
)
from leakbound_lab.attacks.metrics import Pictures
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.attacks import EstimatorConfig
from leakbound_lab.training.eager_optimizers import Adam

_FOLDS = 4
_LEAST = 40  # records
_LEVELS = 25  # capacities that are trained on
_CHECKED = 4  # of these, every fourth is validated
_VALIDATION = 128  # records that decide about the weight of the network, a tenth of all at most


def train_estimator(
    images: Pictures,
    spectra: Sequence[Spectrum],
    config: EstimatorConfig,
    *,
    shrinkage: float,
    seed: int,
    dataset: str,
) -> Estimator:
    """Train one network for all shapes and levels of the channels of a dataset.

    Args:
        images: The attacker's records.
        spectra: Spectrum of each shape of channels, which these are calibrated from.
        config: Settings, with at least one step.
        shrinkage: Shrinkage of the records' covariance, see :class:`~leakbound.channels.covariance.Moments`.
        seed: Seed of the configuration. Equal arguments give equal bytes on one machine.
        dataset: Name of the dataset.

    Returns:
        The estimator, with the weight of its network for each shape and level.

    Raises:
        ValueError: If there are fewer than 40 records or no spectra, or these and the images differ in
            dimension.
    """
    shape = images.shape[1:]
    words = (dataset, "estimator")
    if len(images) < _LEAST or not spectra:
        raise ValueError(
            f"{dataset}: an estimator of {len(images)} records and {len(spectra)} shapes of channels; it takes at "
            f"least {_LEAST} records of the attacker (aux) and one shape"
        )
    network = Denoiser(shape, config.width, torch_generator(seed, *words, "network"))
    records = images.reshape(len(images), -1)[numpy_generator(seed, *words, "order").permutation(len(images))]
    course = _course(records, shape, [_channels(spectrum, config) for spectrum in spectra], shrinkage)
    generator = torch_generator(seed, *words, "training")
    optimizer = Adam(network.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, config.learning_rate, total_steps=config.steps, pct_start=0.1, cycle_momentum=False
    )
    # Each step sees records of one fold through channels of one family, and corrects their linear estimates.
    for _ in range(config.steps):
        scene, rows = course.batch(config.batch_size, generator)
        levels = torch.randint(len(scene.gain), (config.batch_size,), generator=generator)
        truth = course.records[rows]
        linear, released = scene.draw(truth, levels, generator)
        view = scene.view.part(levels)
        errors = (network(linear, released, view) - truth).square().mean(1) / view.posterior.square().mean(1)
        optimizer.zero_grad()
        errors.mean().backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    families = course.validated(network, torch_generator(seed, *words, "validation"))
    return Estimator(shape, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, families)


def _channels(spectrum: Spectrum, config: EstimatorConfig) -> list[GaussianChannel]:
    """Calibrate channels of one shape over the trained range of capacities."""
    shape = shape_named(spectrum.shape)
    return [
        shape.calibrate(spectrum, float(capacity)) for capacity in np.geomspace(*config.capacities, _LEVELS)
    ]


@dataclass(frozen=True)
class Scene:
    """Channels along common axes, and the linear estimate of an attacker who knows moments of other records.

    Attributes:
        mean: (d,), mean of the other records.
        scale: (d,), standard deviation of the noise on each pixel, but for a factor, or 1 along principal
            axes.
        axes: (d, d), orthonormal columns, principal directions of the other records over ``scale``.
        gain: (channels, d), factor of the channel along the axes.
        noise: (channels, d), standard deviation of its noise along the axes.
        weight: (channels, d), factor of the linear estimate along the axes.
        view: Channels as the network sees them.
        families: The channels' families, of equally many each, with no trust yet.
    """

    mean: Tensor
    scale: Tensor
    axes: Tensor
    gain: Tensor
    noise: Tensor
    weight: Tensor
    view: ChannelView
    families: tuple[Family, ...]

    def draw(
        self, records: Float[Tensor, "n d"], channels: Int[Tensor, " n"], generator: torch.Generator
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
        """Draw noisy versions of records, from a channel each, and return their linear estimates and them."""
        noisy = self.gain[channels] * (((records - self.mean) / self.scale) @ self.axes)
        noisy += self.noise[channels] * torch.randn(noisy.shape, generator=generator)
        both = torch.cat([self.weight[channels] * noisy, noisy]) @ self.axes.T
        linear, released = (both * self.scale + self.mean).chunk(2)
        return linear, released


def scene_of(
    moments: Moments, shape: tuple[int, int, int], groups: Sequence[Sequence[GaussianChannel]]
) -> Scene:
    """Make the scene of channels of some shapes.

    Noise is that of the channel. Along the axes of other moments than those it was made from, it is taken to
    be independent.
    """
    profile = profile_of(groups[0][0])
    scale = np.ones(moments.dimension) if profile is None else np.sqrt(profile)
    variances, axes = linalg.eigh(moments.covariance / np.outer(scale, scale), driver="evd")
    variances = clip_eigenvalues(variances)
    squares = np.square(axes)
    bands = in_bands(scale[:, None] * axes, shape)
    columns = []
    # Gain, noise and linear estimate of each channel along the common axes, and what it leaves unknown.
    for group in groups:
        basis = group[0].basis
        onto = squares.T / np.square(scale) if basis is None else np.square(axes.T @ basis)
        for channel in group:
            noise = onto @ channel.variances
            gain = np.ones(len(noise)) if channel.gain is None else onto @ channel.gain
            total = np.square(gain) * variances + noise
            weight = np.divide(gain * variances, total, out=np.zeros_like(total), where=total > 0)
            left = variances * (1 - gain * weight)
            pixels = np.square(scale) * (squares @ np.stack([noise, left], axis=1)).T
            context = relative(bands @ left, bands @ variances)
            columns.append((gain, np.sqrt(noise), weight, *np.sqrt(pixels), context))
    gain, noise, weight, *view = (
        torch.from_numpy(np.stack(column).astype(np.float32)) for column in zip(*columns, strict=True)
    )
    unknown = view[1].double().square().sum(1).numpy() / moments.total_variance
    families = tuple(
        Family(group[0].shape, profile_of(group[0]), part, np.zeros(len(part)))
        for group, part in zip(groups, np.split(unknown, len(groups)), strict=True)
    )
    mean, factor, turn = (torch.from_numpy(array.astype(np.float32)) for array in (moments.mean, scale, axes))
    return Scene(mean, factor, turn, gain, noise, weight, ChannelView(*view), families)


@dataclass(frozen=True)
class _Course:
    """Records in folds, each with scenes whose moments are those of the other folds.

    Attributes:
        records: (n, d).
        folds: Rows of each fold that are trained on.
        held_out: Rows of the first fold that are not.
        scenes: Scenes of each fold.
    """

    records: Tensor
    folds: tuple[Tensor, ...]
    held_out: Tensor
    scenes: tuple[tuple[Scene, ...], ...]

    def batch(self, size: int, generator: torch.Generator) -> tuple[Scene, Tensor]:
        """Draw a scene, each family as often as any other, and rows of its fold."""
        fold = int(torch.randint(len(self.folds), (), generator=generator))
        families = torch.tensor([len(scene.families) for scene in self.scenes[fold]], dtype=torch.float32)
        scene = self.scenes[fold][int(families.multinomial(1, generator=generator))]
        return scene, self.folds[fold][torch.randint(len(self.folds[fold]), (size,), generator=generator)]

    @torch.no_grad()
    def validated(self, network: Denoiser, generator: torch.Generator) -> tuple[Family, ...]:
        """Choose the weights of the network that are best on the records that are held out."""
        errors = []
        truth = self.records[self.held_out]
        for scene in self.scenes[0]:
            for number, family in enumerate(scene.families):
                checked = np.arange(len(family.unknown))[::_CHECKED]
                trust = []
                for level in checked.tolist():
                    channels = torch.full((len(truth),), number * len(family.unknown) + level)
                    linear, released = scene.draw(truth, channels, generator)
                    learned = network(linear, released, scene.view.part(channels))
                    plain = linear.clamp(-LARGEST_PIXEL, LARGEST_PIXEL)
                    step = learned.clamp(-LARGEST_PIXEL, LARGEST_PIXEL) - plain
                    best = ((truth - plain) * step).sum() / step.square().sum().clamp_min(1e-30)
                    # A network that diverged is never trusted.
                    trust.append(float(best.nan_to_num(0.0).clamp(0, 1)))
                order = np.argsort(family.unknown[checked])
                trusted = family.unknown[checked][order], np.array(trust)[order]
                errors.append(Family(family.shape, family.profile, *trusted))
        return tuple(errors)


def _course(
    records: Float[np.ndarray, "n d"],
    shape: tuple[int, int, int],
    groups: Sequence[list[GaussianChannel]],
    shrinkage: float,
) -> _Course:
    """Make the course for channels of some shapes. Shapes with noise along the same axes share scenes."""
    alike: dict[bytes, list[list[GaussianChannel]]] = {}
    for group in groups:
        profile = profile_of(group[0])
        key = b"" if profile is None or np.ptp(profile) == 0 else profile.tobytes()
        alike.setdefault(key, []).append(group)
    folds = np.array_split(np.arange(len(records)), _FOLDS)
    held_out = folds[0][: min(_VALIDATION, len(records) // 10)]
    scenes = []
    for fold in folds:
        outside_moments = _shrunk(estimate_moments([np.delete(records, fold, axis=0)]), shrinkage)
        scenes.append(tuple(scene_of(outside_moments, shape, same) for same in alike.values()))
    rows = [torch.from_numpy(np.setdiff1d(fold, held_out)) for fold in folds]
    return _Course(torch.from_numpy(records), tuple(rows), torch.from_numpy(held_out), tuple(scenes))


def _shrunk(moments: Moments, weight: float) -> Moments:
    """Shrink a covariance: (1 − weight) Σ + weight · (mean variance) I."""
    level = moments.total_variance / moments.dimension
    mixed = (1 - weight) * moments.covariance + weight * level * np.eye(moments.dimension)
    return replace(moments, covariance=mixed, shrinkage=weight)
