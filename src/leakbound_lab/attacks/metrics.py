"""Closeness of reconstructions, and separation of members from others.

Metrics of images take ``truth`` and ``candidate`` of one shape (..., colors, height, width) on the networks'
scale [−1, 1] and return a float64 number for each image, of shape (...). Errors are stated on the pixel scale
[0, 1], as the papers print them. Every estimate from a sample of records or replicas comes with a 95 %
interval.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import ndimage, special

Pictures = Float[np.ndarray, "n colors height width"]
Images = Float[np.ndarray, "..."]
PerImage = Float[np.ndarray, "..."]
Values = float | np.ndarray

_CONFIDENCE = 0.95  # of every interval
LEAST_SIDE = 7
"""Pixels along a side of the smallest images that have a structural similarity."""
_WINDOW = 11  # pixels along a side of SSIM's window; LEAST_SIDE on images too small for it
_MEANS = 0.01**2  # keeps SSIM's ratio of means finite where both images are black
_SPREADS = 0.03**2  # and its ratio of variances where both are flat


@dataclass(frozen=True)
class Interval:
    """An estimate with the ends of its confidence interval, NaN where the sample allows none."""

    value: float
    low: float
    high: float


def mse(truth: Images, candidate: Images) -> PerImage:
    """Compute the mean squared error in squared pixel units, mean((truth − candidate)²) / 4.

    It is in [0, 1] for images in range. Values of a candidate outside [−1, 1] are not clipped.
    """
    truth, candidate = _pixels(truth, candidate)
    return np.asarray(((truth - candidate) ** 2).mean(axis=(-3, -2, -1)))


def psnr(truth: Images, candidate: Images) -> PerImage:
    """Compute the peak signal-to-noise ratio, −10 log₁₀ MSE in dB, infinite for identical images."""
    with np.errstate(divide="ignore"):
        return np.asarray(-10.0 * np.log10(mse(truth, candidate)))


def ssim(truth: Images, candidate: Images) -> PerImage:
    """Compute the structural similarity with the Gaussian window of its authors, averaged over colors.

    It is at most 1, which identical images reach. The window has 11 × 11 pixels and σ = 1.5 pixels. On images
    smaller than that, which must have at least 7 × 7 pixels, it has 7 × 7 pixels and σ = 0.9.

    Source:
        Wang et al. 2004, "Image quality assessment: from error visibility to structural similarity".
    """
    border = _window(truth) // 2
    inner = slice(border, -border)
    return np.asarray(similarity_map(truth, candidate)[..., inner, inner].mean(axis=(-3, -2, -1)))


def _window(images: Images) -> int:
    """Return the side of the window in pixels for images of this size."""
    return _WINDOW if min(images.shape[-2:]) >= _WINDOW else LEAST_SIDE


def similarity_map(truth: Images, candidate: Images) -> Images:
    """Compute the structural similarity around each pixel.

    :func:`ssim` is its mean over the pixels whose window lies inside the image.

    Returns:
        Similarities of the images' shape. Within 5 pixels of the border (3 on small images) the image is
        mirrored to fill the window.
    """
    truth, candidate = _pixels(truth, candidate)
    if min(truth.shape[-2:]) < LEAST_SIDE:
        raise ValueError(
            f"images of {truth.shape[-2]}×{truth.shape[-1]} pixels: SSIM's window needs at least 7×7"
        )
    sigma = 1.5 if _window(truth) == _WINDOW else 0.9  # it decides the window
    smooth = partial(ndimage.gaussian_filter, sigma=sigma, truncate=3.5, axes=(-2, -1))
    first = smooth(truth)
    second = smooth(candidate)
    products = first * second
    variances = smooth(truth * truth) - first * first + (smooth(candidate * candidate) - second * second)
    alike = (2 * products + _MEANS) * (2 * (smooth(truth * candidate) - products) + _SPREADS)
    return np.asarray(alike / ((first**2 + second**2 + _MEANS) * (variances + _SPREADS)))


def cosine(truth: Images, candidate: Images) -> PerImage:
    """Compute the cosine of the angle between images as vectors on [−1, 1], or 0 if one is zero everywhere.

    The networks' scale is used because on [0, 1], where no pixel is negative, any two images seem similar.
    """
    axes = (-3, -2, -1)
    first = truth.astype(np.float64)
    second = candidate.astype(np.float64)
    norms = np.sqrt((first**2).sum(axis=axes) * (second**2).sum(axis=axes))
    products = (first * second).sum(axis=axes)
    return np.asarray(np.divide(products, norms, out=np.zeros_like(products), where=norms != 0))


def bounded_mse(error: Values, prior: Values) -> Values:
    """Compute min(MSE, prior), the error of an attacker who may fall back on the prior image.

    Args:
        error: MSE of the attack, squared pixel units. NaN stays NaN.
        prior: MSE of the best image without an observation, same units.
    """
    return np.minimum(error, prior)


def auc_interval(members: Float[np.ndarray, " m"], nonmembers: Float[np.ndarray, " n"]) -> Interval:
    """Compute the area under the ROC curve, P(member > non-member) + ½ P(equal), with DeLong's interval.

    The variance of the AUC is that of the placements, var(V₁₀)/m + var(V₀₁)/n, computed from midranks. The
    interval is clipped to [0, 1]. If the scores separate perfectly or all tie, the variance is 0 and
    uninformative. It is then replaced by the exact binomial interval of min(m, n) disjoint pairs, of which
    the area is the share in the right order.

    Args:
        members: Scores of the members, higher means member.
        nonmembers: Scores of the non-members.

    Raises:
        ValueError: If there are fewer than two scores of a kind, or one is not finite.

    Source:
        DeLong et al. 1988. The rank form is from Sun and Xu 2014.
    """
    _check_scores(members, nonmembers)
    area = float(_below(members, nonmembers).sum()) / (len(members) * len(nonmembers))
    variance = sum(part.var(ddof=1) / len(part) for part in score_parts(members, nonmembers))
    if variance == 0:
        pairs = min(len(members), len(nonmembers))
        low, high = (proportion_interval(edge(area * pairs), pairs) for edge in (math.floor, math.ceil))
        return Interval(area, low.low, high.high)
    half = special.ndtri(0.5 + _CONFIDENCE / 2) * math.sqrt(variance)
    return Interval(area, max(0.0, area - half), min(1.0, area + half))


def blind_area(
    rows: Float[np.ndarray, "n values"],
    membership: Bool[np.ndarray, " n"],
    learnt: Int[np.ndarray, " a"],
    evaluated: Int[np.ndarray, " e"],
) -> Interval:
    """Compute the AUC of a ridge classifier that sees records and their squares, but no network.

    An AUC above ½ means that members and non-members differ in distribution. In that case no membership score
    shows what a network leaks.

    Args:
        rows: Records as vectors.
        membership: Which of them are members.
        learnt: Indices of the records that it learns from.
        evaluated: Indices of the records that it is evaluated on.

    Source:
        Das, Zhang and Tramèr 2024, "Blind baselines beat membership inference attacks for foundation models".
    """
    deviation = rows[learnt].std(0)
    scaled = (rows - rows[learnt].mean(0)) / np.where(deviation > 1e-6, deviation, 1.0)
    scaled = np.clip(scaled, -10, 10)
    inputs = np.concatenate([scaled, scaled**2 - 1], axis=1)
    gram = (inputs[learnt] @ inputs[learnt].T).astype(np.float64)
    ridge = gram + np.eye(len(gram)) * max(np.trace(gram) / len(gram), 1.0)
    weights = np.linalg.solve(ridge, np.where(membership[learnt], 1.0, -1.0))
    scores = inputs[evaluated] @ (inputs[learnt].T @ weights)
    return auc_interval(scores[membership[evaluated]], scores[~membership[evaluated]])


def score_parts(
    members: Float[np.ndarray, " m"], nonmembers: Float[np.ndarray, " n"], fpr: float | None = None
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, " n"]]:
    """Compute the contribution of each score to the AUC, or to the true-positive rate at ``fpr``.

    The members' mean is the AUC or the rate. For the AUC the contributions are the placements V₁₀ and V₀₁.
    For a rate, a member contributes 1 if it lies above the threshold. A non-member above it moves the
    threshold along the curve, and contributes the curve's slope, measured from half to twice the
    false-positive rate.
    """
    n = len(nonmembers)
    if fpr is None:
        return _below(members, nonmembers) / n, 1.0 - _below(nonmembers, members) / len(members)
    falling = np.sort(nonmembers)[::-1]
    allowed = int(fpr * n)
    few = allowed // 2
    many = min(2 * allowed + 1, n - 1)
    slope = float(np.mean((members > falling[many]) & (members <= falling[few]))) * n / (many - few)
    return (members > falling[allowed]).astype(float), -slope * (nonmembers >= falling[allowed])


def standard_errors(
    first: Float[np.ndarray, "2 n"], second: Float[np.ndarray, "2 n"], fpr: float | None = None
) -> float:
    """Compare two attackers by AUC, or by true-positive rate at ``fpr``, in standard errors.

    Args:
        first: One attacker's scores of n members and n non-members. Records without a score (NaN) are left
            out.
        second: The other attacker's scores of the same records.
        fpr: False-positive rate, in (0, 1), or None for the AUC.

    Returns:
        The paired difference, first minus second, over its standard error. It is 0 if there is no difference
        or if fewer than two records of a kind have scores.
    """
    both = np.isfinite(first) & np.isfinite(second)
    if both.sum(axis=1).min() < 2:
        return 0.0
    first_parts = score_parts(first[0][both[0]], first[1][both[1]], fpr)
    second_parts = score_parts(second[0][both[0]], second[1][both[1]], fpr)
    gains = [first_parts[group] - second_parts[group] for group in (0, 1)]
    error = math.sqrt(sum(float(gain.var(ddof=1)) / len(gain) for gain in gains))
    return float(gains[0].mean()) / error if error else 0.0


def roc_curve(
    members: Float[np.ndarray, " m"], nonmembers: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " t"], Float[np.ndarray, " t"]]:
    """Compute false- and true-positive rates of all thresholds, rising. Higher scores mean member."""
    thresholds = np.unique(np.concatenate([members, nonmembers]))[::-1]
    rates = [1 - np.searchsorted(np.sort(part), thresholds) / len(part) for part in (nonmembers, members)]
    return rates[0], rates[1]


def tpr_at_fpr(members: Float[np.ndarray, " m"], nonmembers: Float[np.ndarray, " n"], fpr: float) -> Interval:
    """Compute the largest true-positive rate of a threshold whose false-positive rate is at most ``fpr``.

    Args:
        members: Scores of the members, higher means member.
        nonmembers: Scores of the non-members. With fewer than 1/``fpr`` of them, no false positive is allowed
            at all.
        fpr: Highest false-positive rate, in [0, 1).

    Returns:
        Rate in [0, 1] with the exact (Clopper-Pearson) interval of the members above the threshold. The
        interval treats the threshold as fixed, so it does not cover the sampling error of the non-members'
        tail.

    Raises:
        ValueError: If there are fewer than two scores of a kind, or one is not finite.
    """
    _check_scores(members, nonmembers)
    count = len(nonmembers)
    allowed = max(k for k in range(math.floor(fpr * count) + 2) if k / count <= fpr)
    least = np.partition(nonmembers, count - 1 - allowed)[count - 1 - allowed]  # a threshold lies above it
    return proportion_interval(int((members > least).sum()), len(members))


def proportion_interval(successes: int, trials: int) -> Interval:
    """Compute a proportion with its exact (Clopper-Pearson) interval, which is conservative."""
    tail = (1 - _CONFIDENCE) / 2
    low = special.betaincinv(successes, trials - successes + 1, tail) if successes else 0.0
    high = special.betainccinv(successes + 1, trials - successes, tail) if successes < trials else 1.0
    return Interval(successes / trials, float(low), float(high))


def _pixels(truth: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map both images from [−1, 1] to [0, 1], float64."""
    return (truth.astype(np.float64) + 1.0) / 2.0, (candidate.astype(np.float64) + 1.0) / 2.0


def _below(
    scores: Float[np.ndarray, " n"], compared_scores: Float[np.ndarray, " m"]
) -> Float[np.ndarray, " n"]:
    """Count the others below each score, with half of those that equal it."""
    ordered = np.sort(compared_scores)
    return (np.searchsorted(ordered, scores) + np.searchsorted(ordered, scores, side="right")) / 2


def _check_scores(members: np.ndarray, nonmembers: np.ndarray) -> None:
    """Refuse fewer than two scores of a kind, and any that is not finite."""
    finite = np.isfinite(members).all() and np.isfinite(nonmembers).all()
    if min(len(members), len(nonmembers)) < 2 or not finite:
        raise ValueError(
            f"{len(members)} members' and {len(nonmembers)} non-members' scores: give at least 2 of each, all finite"
        )
