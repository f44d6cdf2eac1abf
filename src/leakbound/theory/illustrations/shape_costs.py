"""Costs and protection of channels in closed form: shapes, the published bound, several rounds."""

import math

import numpy as np
import pandas as pd

from leakbound.accounting.gaussian import gaussian_capacity, linear_mmse, linear_mmse_from_covariances
from leakbound.accounting.reconstruction import gaussian_surrogate_error
from leakbound.channels.calibration import noise_scale
from leakbound.channels.channel import GaussianChannel, Spectrum, channel_capacity
from leakbound.channels.covariance import Moments
from leakbound.channels.shapes import shape_named
from leakbound.config.studies import IllustrationConfig
from leakbound.datasets import ImageDataset
from leakbound.theory.illustrations.needs import (
    capacities,
    decompose,
    existing_eigenvalues,
    natural_capacities,
    needed,
)

_COMPARED = ("natural", "white", "personalized", "least_power", "rate_distortion")
_BATCH = 64
_LENGTHS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
_ROUNDING = 1.0 / (12.0 * 255.0**2)
"""Variance of the rounding of a pixel on the scale [0, 1]; on [-1, 1] it is four times as large."""


def shape_costs(
    settings: IllustrationConfig,
    *,
    dataset: ImageDataset | None = None,
    moments: Moments | None = None,
    **_: object,
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
    dataset, moments = needed("shapes", dataset, moments)
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
    settings: IllustrationConfig,
    *,
    dataset: ImageDataset | None = None,
    moments: Moments | None = None,
    **_: object,
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
    dataset, moments = needed("personalized_cost", dataset, moments)
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
    settings: IllustrationConfig,
    *,
    dataset: ImageDataset | None = None,
    moments: Moments | None = None,
    **_: object,
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
    dataset, moments = needed("leakage", dataset, moments)
    eigenvalues = existing_eigenvalues(moments)
    frames = []
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
            frames.append(
                pd.DataFrame(values, columns=["metric", "account", "value"]).assign(
                    level=level, rounds=rounds
                )
            )
    return pd.concat(frames, ignore_index=True).assign(dataset=dataset.name)
