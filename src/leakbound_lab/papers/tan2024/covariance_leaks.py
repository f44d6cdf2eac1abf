"""Membership that a published mean and covariance reveal, without any network."""

import numpy as np
import pandas as pd
from jaxtyping import Float, Num
from scipy import linalg, stats

from leakbound.channels.covariance import Moments, chunks, estimate_moments, population_moments
from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.attacks.metrics import auc_interval
from leakbound_lab.config.studies import IllustrationConfig
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.papers.tan2024.closed_forms import existing_eigenvalues

_RATIOS = (0.5, 1.0, 2.0, 3.0, 6.0)
"""Records N for each of the d directions in which the data vary."""
_MOST = 10_000  # records N, which are held as float64
_SCORED = 1000  # records of either kind that the attacker scores, at most
_LEAST = 1e-9  # share of the largest variance that a direction without any counts as
_QUANTILES = 2000  # at which the law of a member's distance is integrated


def covariance_leak(
    settings: IllustrationConfig, *, dataset: ImageDataset, moments: Moments, seed: int
) -> pd.DataFrame:
    """Infer membership from a published mean and covariance: AUC of the distances of records.

    Each replica draws N members and other records from the pool. The attacker computes the distance of each
    record from the published moments. A small distance indicates a member. The settings need
    ``covariance: aux``, the moments that channels are calibrated to.

    Returns:
        Columns ``dataset``, ``published``, ``records`` (N), ``ratio`` (N/d, d being the number of directions
        in which the pool varies), ``replica``, ``metric`` (``auc``), ``value``. Values of ``published``:
        ``members`` is the exact mean and covariance of the N records. ``shrunk`` is the same after the
        shrinkage of :func:`population_moments`. ``undone`` is for an attacker who knows the weight of the
        shrinkage and reverts it. ``mean`` is the mean alone, compared with that of ``aux`` along the
        directions of its covariance. ``aux`` is the moments that channels are calibrated to, and ``gaussian``
        is :func:`gaussian_auc`.

    Raises:
        ValueError: If the moments are not those of ``aux``, or the pool is too small.
    """
    if settings.covariance != "aux":
        raise ValueError(f"illustrations.covariance_leak.covariance = {settings.covariance!r}: must be 'aux'")
    private = dataset.pool.images.reshape(len(dataset.pool), -1)
    width = len(existing_eigenvalues(estimate_moments(chunks(private))))
    nonmembers = min(_SCORED, len(private) // 4)
    most = min(_MOST, len(private) - nonmembers)
    sizes = [size for ratio in _RATIOS if 3 <= (size := round(ratio * width)) <= most]
    if not sizes:
        raise ValueError(
            f"{dataset.name}: {len(private)} records of the pool are too few for {width} directions"
        )
    axes = _axes(moments)
    rows = []
    for replica in range(settings.replicas):
        order = numpy_generator(seed, "covariance_leak", dataset.name, replica).permutation(len(private))
        strangers = private[order[-nonmembers:]]
        for count in sizes:
            members = private[order[:count]]
            areas = {**_areas(members, strangers, moments, axes), "gaussian": gaussian_auc(count, width)}
            shared = {"records": count, "ratio": count / width, "replica": replica, "metric": "auc"}
            rows += [{"published": name, **shared, "value": value} for name, value in areas.items()]
    return pd.DataFrame(rows).assign(dataset=dataset.name)


def gaussian_auc(records: int, dimension: int) -> float:
    """Compute the AUC of distances for Gaussian records whose own mean and covariance are published.

    The distance of a member is distributed as (N − 1) B with B ~ Beta(d/2, (N − d − 1)/2), that of another
    record as d (N + 1)/(N − d) F with F ~ F(d, N − d). Both are independent of the covariance.

    Args:
        records: N, number of members.
        dimension: d, number of values of a record. If N <= d + 1, members are identified with certainty.

    Source:
        Gnanadesikan and Kettenring 1972, "Robust estimates, residuals, and outlier detection".
    """
    if records <= dimension + 1:
        return 1.0
    free = records - dimension
    in_sample = (records - 1) * stats.beta(dimension / 2, (free - 1) / 2).ppf(
        (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    )
    return float(stats.f(dimension, free).sf(in_sample * free / (dimension * (records + 1))).mean())


def _areas(
    members: Float[np.ndarray, "n d"],
    strangers: Float[np.ndarray, "m d"],
    law: Moments,
    axes: tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]],
) -> dict[str, float]:
    """Compute the AUC for each kind of publication. ``axes`` are variances and directions of ``aux``."""
    exact = estimate_moments(chunks(members))
    shrunk = population_moments(members)
    scored = np.concatenate([members[:_SCORED], strangers])
    weight = shrunk.shrinkage
    level = exact.total_variance / exact.dimension
    variances, basis = _axes(exact)
    squares = _squares(scored, exact.mean, basis)
    raised = (1 - weight) * variances + weight * level  # both have the same directions
    scores = {"members": _distances(variances, squares), "shrunk": _distances(raised, squares)}
    if weight < 1:
        scores["undone"] = _distances((raised - weight * level) / (1 - weight), squares)
    scores["aux"] = _distances(axes[0], _squares(scored, law.mean, axes[1]))
    along = ((scored - law.mean) @ axes[1]) * ((exact.mean - law.mean) @ axes[1])
    scores["mean"] = -(along[:, axes[0] > 0] / axes[0][axes[0] > 0]).sum(axis=1)
    count = len(scored) - len(strangers)
    return {name: auc_interval(-values[:count], -values[count:]).value for name, values in scores.items()}


def _axes(moments: Moments) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
    """Return the variances of moments, none below 0, and their directions."""
    variances, basis = linalg.eigh(moments.covariance, driver="evd")
    return variances.clip(min=0), basis


def _squares(
    records: Num[np.ndarray, "n ..."], mean: Float[np.ndarray, " d"], basis: Float[np.ndarray, "d d"]
) -> Float[np.ndarray, "n d"]:
    """Compute squared coordinates along the directions."""
    return ((records.reshape(len(records), -1).astype(np.float64) - mean) @ basis) ** 2


def _distances(
    variances: Float[np.ndarray, " d"], squares: Float[np.ndarray, "n d"]
) -> Float[np.ndarray, " n"]:
    """Sum squared coordinates over variances."""
    return (squares / variances.clip(min=_LEAST * variances.max())).sum(axis=1)
