"""Closed forms of the main paper: capacity surface, toy example, weights, and compression as noise."""

import math
from typing import Any

import numpy as np
import pandas as pd

from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.channels.calibration import noise_scale
from leakbound.channels.covariance import Moments
from leakbound.config.data import IMAGE_SIDE
from leakbound.config.studies import IllustrationConfig
from leakbound.datasets import ImageDataset
from leakbound.theory.illustrations.needs import (
    existing_eigenvalues,
    natural_capacities,
    needed,
    pixel_weights,
)


def capacity_surface(settings: IllustrationConfig, **_: object) -> pd.DataFrame:
    """Tabulate the capacity per dimension ½ ln((λ + σ)/σ) over a grid of λ and σ (Tan et al. 2024, Fig. 3).

    The figure does not state d, which only scales the surface. Here d = 1.

    Returns:
        Columns ``eigenvalue`` (λ), ``noise_variance`` (σ), ``metric`` (``capacity``), ``value``.
    """
    grid = np.geomspace(0.01, 100.0, 33)
    rows = [
        {
            "eigenvalue": signal,
            "noise_variance": noise,
            "value": gaussian_capacity(np.array([signal]), float(noise)),
        }
        for signal in grid
        for noise in grid
    ]
    return pd.DataFrame(rows).assign(metric="capacity")


def toy_example(settings: IllustrationConfig, **_: object) -> pd.DataFrame:
    """Tabulate one step of D ~ N(-1, 1), F = W²D with learning rate 1, W: 2 → 6 (Tan et al. 2024, Fig. 4).

    Noise on the gradient and noise on the data both have a capacity of 1 nat at W = 2. The same noise on the
    gradient reveals more at W = 6, where the gradient varies more. The noise on the data never does.

    Returns:
        Columns ``weight`` (W), ``noise`` (``none``, ``parameters`` or ``data``), ``metric``, ``gradient``,
        ``value``. Metric ``density`` has a value for each gradient 2WD on a grid. ``capacity`` and
        ``noise_variance`` (of the noise where it is added) have one value for each weight and noise, and
        their gradient is NaN.
    """
    mean, variance, capacity, first = -1.0, 1.0, 1.0, 2.0
    second = first - 2.0 * first * mean
    added = {
        "parameters": noise_scale(np.array([(2.0 * first) ** 2 * variance]), capacity),
        "data": noise_scale(np.array([variance]), capacity),
    }
    frames = []
    for weight in (first, second):
        factor = 2.0 * weight
        spread = factor * math.sqrt(variance)
        gradients = factor * mean + spread * np.linspace(-4.5, 4.5, 181)
        on_gradient = {"none": 0.0, "parameters": added["parameters"], "data": factor**2 * added["data"]}
        for noise, noise_variance in on_gradient.items():
            total = spread**2 + noise_variance
            density = np.exp(-0.5 * (gradients - factor * mean) ** 2 / total) / math.sqrt(
                2.0 * math.pi * total
            )
            where: dict[str, Any] = {"weight": weight, "noise": noise}
            frames.append(
                pd.DataFrame({**where, "metric": "density", "gradient": gradients, "value": density})
            )
            if noise in added:
                reached = gaussian_capacity(np.array([spread**2]), noise_variance)
                facts = {"metric": ["capacity", "noise_variance"], "value": [reached, added[noise]]}
                frames.append(pd.DataFrame({**where, "gradient": math.nan, **facts}))
    return pd.concat(frames, ignore_index=True)


def weight_map(settings: IllustrationConfig, **_: object) -> pd.DataFrame:
    """Tabulate the weights β of the personalized channel, equal for every color (Tan et al. 2024, Fig. 17).

    Returns:
        Columns ``row``, ``column``, ``metric`` (``weight``), ``value``. One row per pixel.
    """
    beta = pixel_weights(1, settings.weights)
    row, column = np.divmod(np.arange(beta.size), IMAGE_SIDE)
    return pd.DataFrame({"row": row, "column": column, "metric": "weight", "value": beta})


def dropped_eigenvalues(
    settings: IllustrationConfig,
    *,
    dataset: ImageDataset | None = None,
    moments: Moments | None = None,
    **_: object,
) -> pd.DataFrame:
    """Set eigenvalues to 0, and tabulate the capacity left and equivalent noise (Tan et al. 2024, Fig. 7).

    The settings need ``levels.natural``: the capacities of the noise before anything is dropped.

    Returns:
        Columns ``dataset``, ``level`` (κ), ``order``, ``dropped``, ``metric``, ``value``. With order
        ``largest_first`` the ``dropped`` largest eigenvalues are 0. ``capacity`` is what is left, and
        ``noise_variance`` is that of natural noise with this capacity when no eigenvalue is dropped. With
        order ``alone`` only the eigenvalue of rank ``dropped``, from 1, is 0. ``eigenvalue`` is its value and
        ``loss`` what the capacity loses.
    """
    dataset, moments = needed("compression", dataset, moments)
    eigenvalues = existing_eigenvalues(moments)[::-1].copy()
    counts = np.unique(
        np.concatenate([np.arange(11), np.geomspace(1, eigenvalues.size - 1, 40).round()]).astype(int)
    )
    rows: list[tuple[float, str, int, str, float]] = []
    for level in natural_capacities("compression", settings):
        noise = noise_scale(eigenvalues, level)
        for count in map(int, counts[counts < eigenvalues.size]):
            left = gaussian_capacity(eigenvalues[count:], noise)
            rows.append((level, "largest_first", count, "capacity", left))
            rows.append((level, "largest_first", count, "noise_variance", noise_scale(eigenvalues, left)))
            if count:
                alone = eigenvalues[count - 1 : count]
                rows.append((level, "alone", count, "eigenvalue", float(alone[0])))
                rows.append((level, "alone", count, "loss", gaussian_capacity(alone, noise)))
    return pd.DataFrame(rows, columns=["level", "order", "dropped", "metric", "value"]).assign(
        dataset=dataset.name
    )
