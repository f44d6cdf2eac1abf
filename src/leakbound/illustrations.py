"""Rows of figures that need no training: closed forms, spectra, and what channels do to pictures.

Every function takes an illustration's settings and returns a tidy table with the columns ``metric`` and ``value`` and
those that say what was measured. Capacities are in nats, variances in squared pixel units of the scale [-1, 1].
"""

from __future__ import annotations

import math
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound import metrics
from leakbound.channels import Channel, Moments, Spectrum, box_weights, channel_capacity, noise_scale
from leakbound.config import BoxWeights, IllustrationConfig
from leakbound.datasets import ImageDataset
from leakbound.gaussian import clip_eigenvalues, gaussian_capacity, linear_mmse, linear_mmse_from_covariances
from leakbound.registry import SHAPES
from leakbound.seeding import numpy_generator

T = TypeVar("T")

_SIZE = 32
_COMPARED = ("natural", "white", "personalized", "least_power", "rate_distortion")


def capacity_surface(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """Capacity per dimension ½ ln((λ + σ)/σ) over a grid of λ and σ (Tan et al. 2024, Fig. 3).

    The figure does not say d, which only scales the surface: here d = 1.

    Args:
        settings: ``weights``: the rectangle and its β.
        dataset: Not used.
        moments: Not used.
        seed: Not used.

    Returns:
        Columns ``eigenvalue`` (λ), ``noise_variance`` (σ), ``metric`` (``capacity``), ``value``.
    """
    grid = np.geomspace(0.01, 100.0, 33)
    rows = [
        {"eigenvalue": signal, "noise_variance": noise, "value": gaussian_capacity(np.array([signal]), float(noise))}
        for signal in grid
        for noise in grid
    ]
    return pd.DataFrame(rows).assign(metric="capacity")


def toy_example(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """One step of D ~ N(-1, 1), F = W²D with learning rate 1, W: 2 → 6 (Tan et al. 2024, Fig. 4).

    Noise on the gradient and noise on the data both have a capacity of 1 nat at W = 2. Kept as it is, the first one
    lets more pass at W = 6, where the gradient varies more; the second one never does.

    Args:
        settings: ``weights``: the rectangle and its β.
        dataset: Not used.
        moments: Not used.
        seed: Not used.

    Returns:
        Columns ``weight`` (W), ``noise`` (``none``, ``parameters`` or ``data``), ``metric``, ``gradient``, ``value``.
        Metric ``density`` has a value for each gradient 2WD on a grid; ``capacity`` and ``noise_variance``, that of the
        noise where it is added, have one for each weight and noise, their gradient is NaN.
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
            density = np.exp(-0.5 * (gradients - factor * mean) ** 2 / total) / math.sqrt(2.0 * math.pi * total)
            where: dict[str, Any] = {"weight": weight, "noise": noise}
            frames.append(pd.DataFrame({**where, "metric": "density", "gradient": gradients, "value": density}))
            if noise in added:
                reached = gaussian_capacity(np.array([spread**2]), noise_variance)
                found = {"metric": ["capacity", "noise_variance"], "value": [reached, added[noise]]}
                frames.append(pd.DataFrame({**where, "gradient": math.nan, **found}))
    return pd.concat(frames, ignore_index=True)


def weights(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """Noise weights β of the personalized channel (Tan et al. 2024, Fig. 17), the same for every color.

    Args:
        settings: ``weights``: the rectangle and its β.
        dataset: Not used.
        moments: Not used.
        seed: Not used.

    Returns:
        Columns ``row``, ``column``, ``metric`` (``weight``), ``value``; one row per pixel.
    """
    beta = _box_weights(1, settings.weights)
    row, column = np.divmod(np.arange(beta.size), _SIZE)
    return pd.DataFrame({"row": row, "column": column, "metric": "weight", "value": beta})


def compression(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """Eigenvalues set to 0 and the capacity that is left, beside the noise that leaves as much (Tan et al., Fig. 7).

    Args:
        settings: Needs ``levels.natural``: the capacities that the noise has before anything is dropped.
        dataset: Gives its name.
        moments: Moments of the dataset, whose spectrum is compressed.
        seed: Not used.

    Returns:
        Columns ``dataset``, ``level`` (κ), ``order``, ``dropped``, ``metric``, ``value``. With order ``largest_first``
        so many of the largest eigenvalues are 0: ``capacity`` is what is left, ``noise_variance`` the natural noise
        that has this capacity with no eigenvalue dropped. With order ``alone`` only the one of that rank, from 1, is 0:
        ``eigenvalue`` is its value and ``loss`` what the capacity loses.

    Raises:
        ValueError: If there are no moments, or levels of other shapes or none.
    """
    dataset, moments = _needed(dataset, "compression"), _needed(moments, "compression")
    if set(settings.levels) != {"natural"}:
        raise ValueError(
            f"illustrations.compression.levels has {', '.join(settings.levels) or 'nothing'}: the channel that is "
            "compressed is the natural one; give levels: {natural: [capacity, ...]}"
        )
    eigenvalues = clip_eigenvalues(np.linalg.eigvalsh(moments.covariance))[::-1].copy()
    eigenvalues = eigenvalues[eigenvalues > 1e-9 * eigenvalues[0]]
    counts = np.unique(np.concatenate([np.arange(11), np.geomspace(1, eigenvalues.size - 1, 40).round()]).astype(int))
    rows: list[dict[str, Any]] = []
    for level in settings.levels["natural"]:
        noise = noise_scale(eigenvalues, level)
        for count in counts[counts < eigenvalues.size]:
            left = gaussian_capacity(eigenvalues[count:], noise)
            rows.append(_measure(level, "largest_first", count, "capacity", left))
            rows.append(_measure(level, "largest_first", count, "noise_variance", noise_scale(eigenvalues, left)))
            if count:
                alone = eigenvalues[count - 1 : count]
                rows.append(_measure(level, "alone", count, "eigenvalue", float(alone[0])))
                rows.append(_measure(level, "alone", count, "loss", gaussian_capacity(alone, noise)))
    return pd.DataFrame(rows).assign(dataset=dataset.name)


def _measure(level: float, order: str, dropped: np.integer[Any], metric: str, value: float) -> dict[str, Any]:
    """One row of :func:`compression`."""
    return {"level": level, "order": order, "dropped": int(dropped), "metric": metric, "value": value}


def shapes(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """What each shape costs and hides at equal capacity, in closed form.

    Args:
        settings: Needs ``levels``. Every shape is calibrated to every capacity that is given for any of them; shapes
            that are named there and are not built in, or only as printed, are compared too.
        dataset: Gives its name.
        moments: Moments of the dataset that the shapes are calibrated to.
        seed: Not used.

    Returns:
        Columns ``dataset``, ``defense`` (the shape), ``level`` (κ), ``metric``, ``value``. As parts of the data's total
        variance: ``noise_power`` E‖ξ‖², ``distortion`` E‖D − D̃‖² of what training sees, ``attacker_error`` E‖D − D̂‖²
        of the best linear estimate from one use. And ``capacity``, recomputed from the calibrated channel.

    Raises:
        ValueError: If there are no moments or levels, or a shape cannot be calibrated to the data.
    """
    dataset, moments = _needed(dataset, "shapes"), _needed(moments, "shapes")
    _need_levels(settings, "shapes")
    rows: list[dict[str, Any]] = []
    capacities = sorted({level for levels in settings.levels.values() for level in levels})
    for shape in dict.fromkeys((*_COMPARED, *settings.levels)):
        spectrum = _decompose(shape, moments, settings.weights)
        for level in capacities:
            channel = SHAPES.get(shape).calibrate(spectrum, level)
            found = {
                "noise_power": channel.noise_power / moments.total_variance,
                "distortion": _distortion(channel, spectrum, moments) / moments.total_variance,
                "attacker_error": _attacker_error(channel, spectrum, moments) / moments.total_variance,
                "capacity": channel_capacity(channel, spectrum),
            }
            rows += [{"defense": shape, "level": level, "metric": name, "value": found[name]} for name in found]
    return pd.DataFrame(rows).assign(dataset=dataset.name)


def _distortion(channel: Channel, spectrum: Spectrum, moments: Moments) -> float:
    """E‖D − D̃‖²: the noise and, with a gain, what the shrinking takes away."""
    if channel.gain is None:
        return channel.noise_power
    if channel.basis is None:
        along = np.diag(moments.covariance)
    elif spectrum.data_eigenvalues is None:
        along = np.einsum("ij,ij->j", channel.basis, moments.covariance @ channel.basis)
    else:
        along = spectrum.data_eigenvalues
    return channel.noise_power + float(((1.0 - channel.gain) ** 2 * along).sum())


def _attacker_error(channel: Channel, spectrum: Spectrum, moments: Moments) -> float:
    """E‖D − D̂‖² of the best linear estimate D̂ from one use of the channel."""
    if spectrum.data_eigenvalues is None or (channel.basis is None and channel.gain is None):
        # Eigenvalues of the data, where the spectrum holds some, are not the variances of its pixels.
        return linear_mmse_from_covariances(moments.covariance, channel.variances)
    if channel.gain is None:
        return linear_mmse(spectrum.data_eigenvalues, channel.variances)
    # Seen through a gain a, noise n hides as much as noise n/a² without one; where nothing passes it hides everything.
    hidden = np.full_like(channel.variances, math.inf)
    np.divide(channel.variances, channel.gain**2, out=hidden, where=channel.gain > 0)
    return linear_mmse(spectrum.data_eigenvalues, hidden)


def noisy_images(
    settings: IllustrationConfig, *, dataset: ImageDataset | None = None, moments: Moments | None = None, seed: int = 0
) -> pd.DataFrame:
    """What channels do to pictures (Tan et al. 2024, Fig. 5), clipped to [-1, 1] as a viewer sees them.

    A picture has the same standard normal draws at every level of a shape, so that only the level tells them apart.

    Args:
        settings: Needs ``levels``: shape to capacities; ``images`` is the number of pictures.
        dataset: The first of its members are shown.
        moments: Moments of the dataset that the channels are calibrated to.
        seed: Seed of the configuration.

    Returns:
        Columns ``dataset``, ``defense`` (the shape, or ``none`` for the clean picture), ``level`` (κ, NaN if clean),
        ``replica`` (which image), ``color``, ``row``, ``column``, ``metric``, ``value``. Metric ``pixel`` is a pixel.
        The others are one value per image, with color, row and column -1: ``ssim`` to the clean image, and
        ``ssim_box``, ``ssim_outside``, ``mse_box``, ``mse_outside`` inside and outside the box that the personalized
        shapes hide most. All are on the pixel scale [0, 1]. ``ssim`` leaves out the 5 pixels at the border, whose
        window is not whole; ``ssim_outside`` counts them with the image mirrored there.

    Raises:
        ValueError: If there is no dataset, or there are no moments or levels.
    """
    dataset, moments = _needed(dataset, "noisy_images"), _needed(moments, "noisy_images")
    _need_levels(settings, "noisy_images")
    clean = dataset.train.images[: settings.images].astype(np.float64)
    frames = [_picture_rows("none", math.nan, clean)]
    for shape, levels in settings.levels.items():
        spectrum = _decompose(shape, moments, settings.weights)
        normal = numpy_generator(seed, "noisy_images", dataset.name, shape).standard_normal((len(clean), clean[0].size))
        for level in levels:
            seen = _released(SHAPES.get(shape).calibrate(spectrum, level), clean, normal)
            frames += [_picture_rows(shape, level, seen), _likeness_rows(shape, level, clean, seen, settings.weights)]
    return pd.concat(frames, ignore_index=True).assign(dataset=dataset.name)


def _released(
    channel: Channel, images: Float[np.ndarray, "n colors 32 32"], normal: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, "n colors 32 32"]:
    """Images after one use of the channel, clipped to the pixel range; ``normal`` holds the standard normal draws."""
    flat = images.reshape(len(images), -1)
    noise = np.sqrt(channel.variances) * normal
    if channel.basis is not None:
        noise = noise @ channel.basis.T
    if channel.gain is not None and channel.mean is not None:
        axes = np.eye(channel.dimension) if channel.basis is None else channel.basis
        flat = channel.mean + ((flat - channel.mean) @ axes * channel.gain) @ axes.T
    return np.clip(flat + noise, -1.0, 1.0).reshape(images.shape)


def _picture_rows(shape: str, level: float, images: Float[np.ndarray, "n colors 32 32"]) -> pd.DataFrame:
    """Pixels of pictures on [0, 1]."""
    image, color, row, column = (index.ravel() for index in np.indices(images.shape))
    where = {"defense": shape, "level": level, "replica": image, "color": color, "row": row, "column": column}
    return pd.DataFrame({**where, "metric": "pixel", "value": (images.ravel() + 1.0) / 2.0})


def _likeness_rows(
    shape: str,
    level: float,
    clean: Float[np.ndarray, "n colors 32 32"],
    seen: Float[np.ndarray, "n colors 32 32"],
    weights: BoxWeights,
) -> pd.DataFrame:
    """Likeness of pictures to the clean ones: in all, inside the box and outside."""
    box = np.zeros((_SIZE, _SIZE), dtype=bool)
    box[slice(*weights.rows), slice(*weights.columns)] = True
    similarity = metrics.similarity_map(clean, seen).mean(axis=1)
    error = ((clean - seen) ** 2).mean(axis=1) / 4.0
    found = {
        "ssim": metrics.ssim(clean, seen),
        "ssim_box": similarity[:, box].mean(axis=1),
        "ssim_outside": similarity[:, ~box].mean(axis=1),
        "mse_box": error[:, box].mean(axis=1),
        "mse_outside": error[:, ~box].mean(axis=1),
    }
    where = {"defense": shape, "level": level, "replica": np.arange(len(clean)), "color": -1, "row": -1, "column": -1}
    return pd.concat([pd.DataFrame({**where, "metric": name, "value": value}) for name, value in found.items()])


def _box_weights(colors: int, box: BoxWeights) -> Float[np.ndarray, " d"]:
    """Weights β for images of so many colors."""
    return box_weights(colors, _SIZE, _SIZE, box.weight, box.rows, box.columns)


def _decompose(shape: str, moments: Moments, weights: BoxWeights) -> Spectrum:
    """Spectrum of the data for a shape, with the weights where the shape takes some."""
    kind = SHAPES.get(shape)
    beta = _box_weights(moments.dimension // _SIZE**2, weights) if kind.takes_weights else None
    return kind.decompose(moments, weights=beta)


def _needed(value: T | None, illustration: str) -> T:
    """The value, or an error that names the setting that gives it."""
    if value is None:
        raise ValueError(f"illustrations.{illustration}.dataset is missing: name the dataset that is to be shown")
    return value


def _need_levels(settings: IllustrationConfig, illustration: str) -> None:
    """Raise if there is nothing to show."""
    if not any(settings.levels.values()):
        raise ValueError(f"illustrations.{illustration}.levels is empty: give channel shapes and capacities in nats")
