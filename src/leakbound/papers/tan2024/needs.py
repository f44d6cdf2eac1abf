"""Checks and spectra that illustrations share: data, levels, eigenvalues."""

import numpy as np
from jaxtyping import Float

from leakbound.accounting.gaussian import clip_eigenvalues
from leakbound.channels.channel import Spectrum
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import shape_named
from leakbound.channels.weights import box_weights
from leakbound.config.data import BoxWeights, image_shape
from leakbound.config.studies import IllustrationConfig
from leakbound.datasets import ImageDataset


def decompose(shape: str, moments: Moments, weights: BoxWeights) -> Spectrum:
    """Decompose the data for a shape, with weights if the shape takes them."""
    kind = shape_named(shape)
    if not kind.takes_weights:
        return kind.decompose(moments)
    colors, side = image_shape(moments.dimension)
    beta = box_weights(colors, side, side, weights.weight, *weights.on(side))
    return kind.decompose(moments, weights=beta)


def existing_eigenvalues(moments: Moments) -> Float[np.ndarray, " r"]:
    """Compute the eigenvalues of the covariance, ascending, without those that are 0 up to rounding."""
    eigenvalues = clip_eigenvalues(np.linalg.eigvalsh(moments.covariance))
    return eigenvalues[eigenvalues > 1e-9 * eigenvalues.max()]


def needed(
    illustration: str, dataset: ImageDataset | None, moments: Moments | None
) -> tuple[ImageDataset, Moments]:
    """Return dataset and moments, or raise an error that names the missing setting."""
    if dataset is None or moments is None:
        raise ValueError(
            f"illustrations.{illustration}.dataset is missing: name the dataset that is to be shown"
        )
    return dataset, moments


def capacities(illustration: str, settings: IllustrationConfig) -> list[float]:
    """Return the capacities of all shapes, ascending, or raise an error if there are none."""
    levels = sorted({level for swept in settings.levels.values() for level in swept})
    if not levels:
        raise ValueError(
            f"illustrations.{illustration}.levels is empty: give channel shapes and capacities in nats"
        )
    return levels


def natural_capacities(illustration: str, settings: IllustrationConfig) -> tuple[float, ...]:
    """Return the capacities of the natural channel, or raise an error if there are others or none."""
    if set(settings.levels) != {"natural"}:
        raise ValueError(
            f"illustrations.{illustration}.levels has {', '.join(settings.levels) or 'nothing'}: only the natural "
            "channel is shown; give levels: {natural: [capacity, ...]}"
        )
    return settings.levels["natural"]
