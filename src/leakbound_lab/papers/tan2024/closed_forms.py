"""Closed forms of the main paper: capacity, compression as noise, cost and protection of shapes and rounds."""

import math
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.accounting.gaussian import (
    clip_eigenvalues,
    gaussian_capacity,
    linear_mmse,
    linear_mmse_from_covariances,
)
from leakbound.accounting.reconstruction import gaussian_surrogate_error
from leakbound.channels.calibration import noise_scale
from leakbound.channels.channel import GaussianChannel, Spectrum, channel_capacity
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import box_weights, shape_named
from leakbound_lab.config.data import IMAGE_SIDE, BoxWeights, image_shape
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.datasets import ImageDataset

_COMPARED = ("natural", "white", "personalized", "least_power", "rate_distortion")
_BATCH = 64
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_ROUNDING = 1.0 / (12.0 * 255.0**2)
"""Variance of the rounding of a pixel on the scale [0, 1]; on [-1, 1] it is four times as large."""


def capacity_surface(settings: IllustrationConfig, **_: object) -> pd.DataFrame:
    """Tabulate the capacity per dimension ½ ln((λ + σ)/σ) over a grid of λ and σ (Tan et al. 2024, Fig. 3).

    The figure does not state d, which only scales the surface. Here d = 1.

    Returns:
        Columns ``eigenvalue`` (λ), ``noise_variance`` (σ), ``metric`` (``capacity``), ``value``.
    """
    grid = np.geomspace(0.01, 100.0, 33)
    rows = [
        (signal, noise, gaussian_capacity(np.array([signal]), float(noise)))
        for signal in grid
        for noise in grid
    ]
    return pd.DataFrame(rows, columns=["eigenvalue", "noise_variance", "value"]).assign(metric="capacity")


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
    mean = -1.0
    variance = 1.0
    capacity = 1.0
    first = 2.0
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
            bell = np.exp(-0.5 * (gradients - factor * mean) ** 2 / total)
            density = bell / math.sqrt(2.0 * math.pi * total)
            where: dict[str, Any] = {"weight": weight, "noise": noise}
            curve = {"metric": "density", "gradient": gradients, "value": density}
            frames.append(pd.DataFrame({**where, **curve}))
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
    box = settings.weights
    beta = box_weights(1, IMAGE_SIDE, IMAGE_SIDE, box.weight, *box.on(IMAGE_SIDE))
    row, column = np.divmod(np.arange(beta.size), IMAGE_SIDE)
    return pd.DataFrame({"row": row, "column": column, "metric": "weight", "value": beta})


def dropped_eigenvalues(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, **_: object
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


def shape_costs(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, **_: object
) -> pd.DataFrame:
    """Compute cost and protection of each shape at equal capacity, in closed form.

    The settings need ``levels``. Every shape is calibrated to every capacity that is given for any shape.
    Shapes of plugins and of the publication are compared, too, if they are named there.

    Returns:
        Columns ``dataset``, ``defense`` (the shape), ``level`` (κ), ``metric``, ``value``. As shares of the
        data's total variance: ``noise_power`` E‖ξ‖², ``distortion`` E‖D − D̃‖² of what training sees,
        ``attacker_error`` E‖D − D̂‖² of the best linear estimate from one use. ``capacity`` is recomputed
        from the calibrated channel.
    """
    rows = []
    for shape in dict.fromkeys((*_COMPARED, *settings.levels)):
        spectrum = decompose(shape, moments, settings.weights)
        for level in capacities("shapes", settings):
            channel = shape_named(shape).calibrate(spectrum, level)
            values = {
                "noise_power": channel.noise_power / moments.total_variance,
                "distortion": _distortion(channel, spectrum, moments) / moments.total_variance,
                "attacker_error": _attacker_error(channel, spectrum, moments) / moments.total_variance,
                "capacity": channel_capacity(channel, spectrum),
            }
            rows += [
                {"defense": shape, "level": level, "metric": name, "value": values[name]} for name in values
            ]
    return pd.DataFrame(rows).assign(dataset=dataset.name)


def _distortion(channel: GaussianChannel, spectrum: Spectrum, moments: Moments) -> float:
    """Compute E‖D − D̃‖²: the noise and, with a gain, what the shrinkage removes."""
    if channel.gain is None:
        return channel.noise_power
    if channel.basis is None:
        along = np.diag(moments.covariance)
    elif spectrum.data_eigenvalues is None:
        along = np.einsum("ij,ij->j", channel.basis, moments.covariance @ channel.basis)
    else:
        along = spectrum.data_eigenvalues
    return channel.noise_power + float(((1.0 - channel.gain) ** 2 * along).sum())


def _attacker_error(channel: GaussianChannel, spectrum: Spectrum, moments: Moments) -> float:
    """Compute E‖D − D̂‖² of the best linear estimate D̂ from one use of the channel."""
    if spectrum.data_eigenvalues is None or (channel.basis is None and channel.gain is None):
        # Eigenvalues of the data, where the spectrum holds some, are not the variances of its pixels.
        return linear_mmse_from_covariances(moments.covariance, channel.variances)
    if channel.gain is None:
        return linear_mmse(spectrum.data_eigenvalues, channel.variances)
    # Seen through a gain a, noise n hides as much as noise n/a² without one; where nothing passes it hides everything.
    hidden = np.full_like(channel.variances, math.inf)
    np.divide(channel.variances, channel.gain**2, out=hidden, where=channel.gain > 0)
    return linear_mmse(spectrum.data_eigenvalues, hidden)


def personalized_cost(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, **_: object
) -> pd.DataFrame:
    """Compute the cost of the published bound of the personalized channel against its exact calibration.

    The published bound needs every pixel to vary given the others, which fails for few images of many pixels.
    So both are calibrated to images before rounding to 256 levels: the variance of the rounding is added to
    the diagonal of the covariance. The settings need the capacities ``levels.personalized``, and ``weights``,
    the rectangle with its β.

    Returns:
        Columns ``dataset``, ``defense`` (``personalized`` or ``personalized_printed``), ``level`` (κ),
        ``metric``, ``value``: ``noise_power`` as a share of the data's total variance, ``capacity`` that the
        noise really has, and ``unused``, κ minus this capacity.
    """
    rows = []
    rounded = np.full(moments.dimension, 4.0 * _ROUNDING)
    moments = Moments(moments.mean, moments.covariance + np.diag(rounded), moments.count)
    for shape in ("personalized", "personalized_printed"):
        spectrum = decompose(shape, moments, settings.weights)
        for level in capacities("personalized_cost", settings):
            channel = shape_named(shape).calibrate(spectrum, level)
            reached = channel_capacity(channel, moments)
            facts = {"noise_power": channel.noise_power / moments.total_variance, "capacity": reached}
            facts["unused"] = level - reached
            rows += [
                {"defense": shape, "level": level, "metric": name, "value": facts[name]} for name in facts
            ]
    return pd.DataFrame(rows).assign(dataset=dataset.name)


def shape_leakage(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, **_: object
) -> pd.DataFrame:
    """Compute the leakage of one record over n rounds by each account, and the error that it leaves.

    With batches of 64 a record is used in k = ⌈64 n / N⌉ of n rounds. The accounts are ``printed_total`` n·κ
    as published, ``added_uses`` k·κ, ``joint`` ½ Σ ln(1 + k λ/σ), and ``drawn_once`` κ for frozen noise. N is
    the number of members. The settings need ``levels.natural``: the capacities.

    Returns:
        Columns ``dataset``, ``level`` (κ), ``rounds``, ``account``, ``metric``, ``value``. Metric ``leakage``
        is in nats about one record. Metric ``error`` is a squared error per pixel on the scale [0, 1], and at
        least that of rounding to 256 levels. For an account it is the Gaussian surrogate at its nats, GM(λ)
        e^{−2I/d} over the d directions in which data vary, which is no bound. For ``linear_fresh`` and
        ``linear_once`` it is the error of the best linear attacker who sees all k copies, or one. For
        ``prior`` it is the variance of the data.

    Source:
        Tan et al. 2024, Sec. 4 (n·κ). The others are Gaussian composition of independent uses.
    """
    eigenvalues = existing_eigenvalues(moments)
    rows: list[tuple[str, str, float, float, int]] = []
    for level in natural_capacities("leakage", settings):
        noise = noise_scale(eigenvalues, level)
        for rounds in _LENGTHS:
            uses = float(math.ceil(_BATCH * rounds / dataset.drawing.members))
            accounts = {
                "printed_total": rounds * level,
                "added_uses": uses * level,
                "joint": gaussian_capacity(eigenvalues, noise, uses),
                "drawn_once": level,
            }
            left = {account: gaussian_surrogate_error(eigenvalues, accounts[account]) for account in accounts}
            left |= {
                "linear_fresh": linear_mmse(eigenvalues, noise, uses) / eigenvalues.size,
                "linear_once": linear_mmse(eigenvalues, noise) / eigenvalues.size,
                "prior": float(eigenvalues.mean()),
            }
            scale = eigenvalues.size / moments.dimension / 4.0
            values = [("leakage", account, nats) for account, nats in accounts.items()]
            values += [("error", account, max(error * scale, _ROUNDING)) for account, error in left.items()]
            rows += [(*value, level, rounds) for value in values]
    columns = ["metric", "account", "value", "level", "rounds"]
    return pd.DataFrame(rows, columns=columns).assign(dataset=dataset.name)


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
