"""Pictures after a channel."""

import math

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import shape_named
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.attacks import metrics
from leakbound_lab.config.data import BoxWeights
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.datasets.portrait import PORTRAIT, portrait
from leakbound_lab.papers.tan2024.closed_forms import capacities, decompose


def noisy_images(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, seed: int
) -> pd.DataFrame:
    """Draw pictures after channels (Tan et al. 2024, Fig. 5), clipped to [-1, 1] as a viewer sees them.

    A picture has the same standard normal draws at every level of a shape, so that only the level differs.
    The settings need ``levels``: shape to capacities. ``images`` is the number of pictures, the first ones of
    the pool. With ``pictures: portrait`` it is that one.

    Returns:
        Columns ``dataset`` (or ``portrait``), ``defense`` (the shape, or ``none`` for the clean picture), ``level``
        (κ, NaN if clean), ``replica`` (which image), ``color``, ``row``, ``column``, ``metric``, ``value``. Metric
        ``pixel`` is a pixel. The other metrics have one value per image, with color, row and column -1.
        ``ssim`` compares with the clean image. ``ssim_box``, ``ssim_outside``, ``mse_box`` and
        ``mse_outside`` do so inside and outside the box that the personalized shapes hide most. All are on
        the pixel scale [0, 1]. ``ssim`` leaves out the 5 pixels at the border, whose window is incomplete.
        ``ssim_outside`` counts them with the image mirrored at the border.
    """
    capacities("noisy_images", settings)
    clean = dataset.pool.images[: settings.images].astype(np.float64)
    if settings.pictures == PORTRAIT:
        clean = portrait(*clean.shape[1:3]).astype(np.float64)
    frames = [picture_rows("none", math.nan, clean)]
    for shape, levels in settings.levels.items():
        spectrum = decompose(shape, moments, settings.weights)
        normal = numpy_generator(seed, "noisy_images", dataset.name, shape).standard_normal(
            (len(clean), clean[0].size)
        )
        for level in levels:
            seen = _released(shape_named(shape).calibrate(spectrum, level), clean, normal)
            frames += [
                picture_rows(shape, level, seen),
                _likeness_rows(shape, level, clean, seen, settings.weights),
            ]
    source = PORTRAIT if settings.pictures == PORTRAIT else dataset.name
    return pd.concat(frames, ignore_index=True).assign(dataset=source)


def _released(
    channel: GaussianChannel,
    images: Float[np.ndarray, "n colors side side"],
    normal: Float[np.ndarray, "n d"],
) -> Float[np.ndarray, "n colors side side"]:
    """Return images after one use of the channel, clipped to the pixel range, from standard normal draws."""
    flat = images.reshape(len(images), -1)
    noise = np.sqrt(channel.variances) * normal
    if channel.basis is not None:
        noise = noise @ channel.basis.T
    if channel.gain is not None and channel.mean is not None:
        axes = np.eye(channel.dimension) if channel.basis is None else channel.basis
        flat = channel.mean + ((flat - channel.mean) @ axes * channel.gain) @ axes.T
    return np.clip(flat + noise, -1.0, 1.0).reshape(images.shape)


def picture_rows(
    shape: str, level: float, images: Float[np.ndarray, "n colors height width"]
) -> pd.DataFrame:
    """Return the pixels of pictures as rows, on the scale [0, 1]."""
    image, color, row, column = (index.ravel() for index in np.indices(images.shape))
    where = {"defense": shape, "level": level, "replica": image, "color": color, "row": row, "column": column}
    return pd.DataFrame({**where, "metric": "pixel", "value": (images.ravel() + 1.0) / 2.0})


def _likeness_rows(
    shape: str,
    level: float,
    clean: Float[np.ndarray, "n colors side side"],
    seen: Float[np.ndarray, "n colors side side"],
    weights: BoxWeights,
) -> pd.DataFrame:
    """Compare pictures with the clean ones: in total, inside the box and outside."""
    box = np.zeros(clean.shape[-2:], dtype=bool)
    rows, columns = weights.on(clean.shape[-1])
    box[slice(*rows), slice(*columns)] = True
    similarity = metrics.similarity_map(clean, seen).mean(axis=1)
    error = ((clean - seen) ** 2).mean(axis=1) / 4.0
    values = {
        "ssim": metrics.ssim(clean, seen),
        "ssim_box": similarity[:, box].mean(axis=1),
        "ssim_outside": similarity[:, ~box].mean(axis=1),
        "mse_box": error[:, box].mean(axis=1),
        "mse_outside": error[:, ~box].mean(axis=1),
    }
    return pd.concat(
        pd.DataFrame({"replica": np.arange(len(clean)), "metric": name, "value": value})
        for name, value in values.items()
    ).assign(defense=shape, level=level, color=-1, row=-1, column=-1)
