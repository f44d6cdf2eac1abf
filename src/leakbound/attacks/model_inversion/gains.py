"""Class means that an attacker knows before it sees a network, and the gains of restored images over them."""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from leakbound.attacks.rows import image_values
from leakbound.datasets import Split


def gains(
    truth: np.ndarray, others: np.ndarray, restored: np.ndarray, controls: Mapping[str, np.ndarray]
) -> dict[str, Float[np.ndarray, " k"]]:
    """Compute gains of restored images over controls, by class means of members (truth) and non-members."""

    def error(mean: np.ndarray, images: np.ndarray) -> Float[np.ndarray, " k"]:
        return image_values(mean, images, ["mse"])["mse"]

    return {
        "gain": error(truth, controls["start"]) - error(truth, restored),
        "gain_over_aux": 1.0 - error(truth, restored) / error(truth, controls["aux_mean"]),
        "gain_on_others": 1.0 - error(others, restored) / error(others, controls["aux_mean"]),
    }


class Prior:
    """Knowledge of the attacker about the means of a class's members, besides the mean of its own records.

    Members are drawn like the attacker's records. So the difference of the two means has the covariance of
    the records of a class, over their numbers.

    Args:
        aux: The attacker's records.
        class_means: Mean of each class.
        classes: The classes, in the same order.
        members: Number of members of all classes, which is no secret.
    """

    def __init__(
        self,
        aux: Split,
        class_means: Float[np.ndarray, "k colors height width"],
        classes: list[int],
        members: int,
    ) -> None:
        self.known = class_means
        self.records = [records_of(aux, label) for label in classes]
        residuals = [records - mean for records, mean in zip(self.records, class_means, strict=True)]
        self._residuals = np.concatenate(residuals).reshape(-1, class_means[0].size)
        self._common = np.linalg.qr(class_means.reshape(len(class_means), -1).T.astype(np.float64))[0]
        counts = np.array([len(records) for records in self.records])
        variance = float(np.square(self._residuals).sum(dtype=np.float64)) / len(self._residuals)
        self.lengths = np.sqrt(variance * (len(classes) / members + 1.0 / counts))

    def deviations(self, slopes: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k d"]:
        """Compute unit vectors along which class means most likely deviate, from slopes of a likelihood.

        To first order the most likely deviation is the prior's covariance times the slope at the known means.
        Slopes within the span of the class means are left out, as they distinguish classes, which those of
        any network of such classes do. A vector is 0 where nothing is left.
        """
        spread = self._residuals.T @ (self._residuals @ slopes.T.astype(np.float32))
        spread = spread.astype(np.float64).T / len(self._residuals)
        rest = spread - (spread @ self._common) @ self._common.T
        sizes = np.linalg.norm(rest, axis=1, keepdims=True)
        return np.divide(rest, sizes, out=np.zeros_like(rest), where=sizes > 0)


def class_means(split: Split, classes: list[int]) -> Float[np.ndarray, "k colors height width"]:
    """Compute the mean image of each class, that of the whole split for a class without records in it."""
    return np.stack([records_of(split, label).mean(axis=0) for label in classes])


def records_of(split: Split, label: int) -> Float[np.ndarray, "n colors height width"]:
    """Select the images of a class, those of the whole split if it has none of it."""
    images = split.images[split.labels == label]
    return images if len(images) else split.images
