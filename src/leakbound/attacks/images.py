"""Images of attackers: their pixels have a range, neighbouring ones are alike, and how near they come makes rows."""

from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from torch import Tensor

from leakbound import metrics

LARGEST_PIXEL = 1.0
"""Largest absolute value of a pixel on the networks' scale."""
COLUMNS = ("replica", "variant", "unit", "metric", "value", "low", "high", "status")
_METRICS = {"mse": metrics.mse, "psnr": metrics.psnr, "ssim": metrics.ssim, "cosine": metrics.cosine}


def image_values(
    truth: Float[np.ndarray, "n colors height width"],
    candidates: Float[np.ndarray, "n colors height width"],
    names: Sequence[str] = tuple(_METRICS),
) -> dict[str, Float[np.ndarray, " n"]]:
    """MSE, PSNR, SSIM and cosine of each candidate, by name.

    Args:
        truth: Images on [-1, 1].
        candidates: What an attacker made of them, same scale. Values of an image are NaN if one of its
            pixels is not finite.
        names: Those that are asked for: mse, psnr, ssim, cosine.
    """
    finite = np.isfinite(candidates).all(axis=(1, 2, 3))
    values = {name: np.full(len(truth), np.nan) for name in names}
    if finite.any():
        for name, column in values.items():
            column[finite] = _METRICS[name](truth[finite], candidates[finite])
    return values


def rows(
    replica: int,
    variant: str,
    units: Iterable[int],
    values: dict[str, Float[np.ndarray, " n"]],
    status: str | Sequence[str] = "",
) -> pd.DataFrame:
    """One row per unit and metric, without intervals.

    Args:
        replica: Which model was attacked.
        variant: Which attacker or control.
        units: Class or image index of each value.
        values: Metric name to one value per unit.
        status: Of all units or of each, of :mod:`leakbound.attacks.status`; empty for a valid one.
    """
    table = pd.DataFrame({"unit": list(units), "status": status, **values}).melt(["unit", "status"], var_name="metric")
    table = table.assign(replica=replica, variant=variant, low=np.nan, high=np.nan)
    # Without an interval, low and high are empty columns.
    return table.astype({"value": np.float64, "low": object, "high": object})[list(COLUMNS)]


def total_variation(images: Float[Tensor, "n colors height width"]) -> Float[Tensor, " n"]:
    """Anisotropic total variation of each image: mean |horizontal difference| + mean |vertical difference|.

    Args:
        images: On the networks' scale.

    Returns:
        One value >= 0 per image, 0 for a constant one.

    Source:
        Geiping et al. 2020.
    """
    horizontal = images[..., :, 1:] - images[..., :, :-1]
    vertical = images[..., 1:, :] - images[..., :-1, :]
    return horizontal.abs().flatten(1).mean(1) + vertical.abs().flatten(1).mean(1)
