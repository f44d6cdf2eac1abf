"""What illustrations need of their settings: data, levels and spectra."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from jaxtyping import Float

from leakbound.channels.channel import Spectrum
from leakbound.channels.covariance import Moments
from leakbound.channels.weights import box_weights
from leakbound.config.defenses import BoxWeights
from leakbound.config.studies import IllustrationConfig
from leakbound.registry import SHAPES

T = TypeVar("T")
SIZE = 32
"""Rows and columns of an image."""


def pixel_weights(colors: int, box: BoxWeights) -> Float[np.ndarray, " d"]:
    """Weights β for images of so many colors."""
    return box_weights(colors, SIZE, SIZE, box.weight, box.rows, box.columns)


def decompose(shape: str, moments: Moments, weights: BoxWeights) -> Spectrum:
    """Spectrum of the data for a shape, with the weights where the shape takes some."""
    kind = SHAPES.get(shape)
    beta = pixel_weights(moments.dimension // SIZE**2, weights) if kind.takes_weights else None
    return kind.decompose(moments, weights=beta)


def needed(value: T | None, illustration: str) -> T:
    """The value, or an error that names the setting that gives it."""
    if value is None:
        raise ValueError(f"illustrations.{illustration}.dataset is missing: name the dataset that is to be shown")
    return value


def need_levels(settings: IllustrationConfig, illustration: str) -> None:
    """Raise if there is nothing to show."""
    if not any(settings.levels.values()):
        raise ValueError(f"illustrations.{illustration}.levels is empty: give channel shapes and capacities in nats")
