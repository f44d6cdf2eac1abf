"""Compression of images by removing one of their principal directions.

It adds no noise, so it has no finite capacity.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import linalg

from leakbound.channels.covariance import Moments
from leakbound.randomness.seeding import numpy_generator

_ITERATED = (
    64  # directions up to this one are found by Lanczos' iteration: seconds, not the minute of all of them
)
_CHUNK = 1024  # images in float64 at once


@dataclass(frozen=True)
class PrincipalDirection:
    """One principal direction of the data.

    Attributes:
        index: Its rank by descending variance, from 0.
        variance: λ, variance of the data along it, squared pixel units.
        axis: (d,), of length 1, with an arbitrary sign.
        mean: (d,), mean record, pixel units.
    """

    index: int
    variance: float
    axis: Float[np.ndarray, " d"]
    mean: Float[np.ndarray, " d"]

    def removed_from(
        self, images: Float[np.ndarray, "n colors height width"]
    ) -> Float[np.ndarray, "n colors height width"]:
        """Replace the coordinate of images along the direction by that of the mean image.

        Returns:
            Images, float32. All other coordinates are unchanged.

        Raises:
            ValueError: If the images have another number of values than the direction.
        """
        if images[0].size != len(self.axis):
            raise ValueError(
                f"images have {images[0].size} values, the principal direction has {len(self.axis)}"
            )
        result = np.empty_like(images, dtype=np.float32)
        for start in range(0, len(images), _CHUNK):
            flat = images[start : start + _CHUNK].reshape(-1, len(self.axis)).astype(np.float64)
            flat -= np.outer((flat - self.mean) @ self.axis, self.axis)
            result[start : start + _CHUNK] = flat.reshape(-1, *images.shape[1:])
        return result


def principal_direction(moments: Moments, index: int) -> PrincipalDirection:
    """Compute the principal direction of the data with the ``index``-th largest variance.

    Args:
        moments: Mean and covariance of the data.
        index: Rank of the direction by descending variance, from 0.

    Raises:
        ValueError: If there is no such direction.

    Source:
        Tan et al. 2024, Appendix D, whose λ_max, λ_1 and λ_10 have the indices 0, 1 and 10.
    """
    from scipy.sparse.linalg import eigsh  # slow import

    size = moments.dimension
    if not 0 <= index < size:
        raise ValueError(
            f"index = {index}: images of {size} values have the principal directions 0 to {size - 1}"
        )
    if index < _ITERATED and size > 4 * _ITERATED:
        start = numpy_generator(0, "principal direction").standard_normal(size)
        variances, axes = eigsh(moments.covariance, k=index + 1, v0=start)
    else:
        variances, axes = linalg.eigh(moments.covariance, subset_by_index=[size - 1 - index, size - 1])
    smallest = int(np.argmin(variances))
    return PrincipalDirection(index, float(variances[smallest]), axes[:, smallest].copy(), moments.mean)
