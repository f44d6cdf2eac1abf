"""Randomized response: a channel for labels, whose mutual information and ε are known in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

_HALVINGS = 40  # coarser than rounding errors, so that calibrations on other machines give the same number


@dataclass(frozen=True)
class RandomizedResponse:
    """A symmetric channel over K classes: keep a label with probability p, else draw one of the K − 1 others.

    The bounds hold for one draw. So draw each label once, and use the response in all epochs and runs.
    Randomize the labels of a dataset before training, or give the response to ``ChannelEngine.for_data``. If
    labels are drawn again at each use, :meth:`information` adds up the draws.

    Attributes:
        classes: K, number of classes, at least 2. Labels are whole numbers from 0 to K − 1.
        keep: p, probability that a label is kept, from 1/K (nothing is revealed) to 1 (labels are unchanged).

    Raises:
        ValueError: If there are fewer than two classes, or ``keep`` is out of range.

    Source:
        Warner 1965, "Randomized response: a survey technique for eliminating evasive answer bias", for two
        classes. Kairouz, Bonawitz and Ramage 2016, "Discrete distribution estimation under local privacy",
        for K classes.

    Example:
        >>> response = RandomizedResponse(classes=10, keep=0.5)
        >>> round(response.capacity, 4), round(response.epsilon, 4)
        (0.5108, 2.1972)
        >>> labels = np.array([3, 1, 4, 1, 5])
        >>> response.randomize(labels, np.random.default_rng(0).random((2, 5)))
        array([2, 1, 4, 1, 4])
    """

    classes: int
    keep: float

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ValueError(f"classes = {self.classes}: give at least 2")
        if not 1.0 / self.classes <= self.keep <= 1.0:
            raise ValueError(
                f"keep = {self.keep}: with {self.classes} classes a label is kept with a probability from "
                f"1/{self.classes} to 1"
            )

    @classmethod
    def calibrate(cls, classes: int, nats: float | int) -> RandomizedResponse:
        """Create the response that keeps as many labels as a capacity allows.

        Args:
            classes: K, at least 2.
            nats: Largest number of nats that the response may reveal about a label, above 0 and below ln K.

        Returns:
            The response, with a capacity that is never above ``nats``.

        Raises:
            ValueError: If an argument is out of range.

        Example:
            >>> response = RandomizedResponse.calibrate(classes=10, nats=0.1)
            >>> round(response.keep, 4), round(response.capacity, 9)
            (0.2569, 0.1)
        """
        if classes > 1 and not 0 < nats < math.log(classes):
            raise ValueError(
                f"nats = {nats}: a label of {classes} classes holds at most ln {classes} = {math.log(classes):.4g}, so "
                "give a number above 0 and below that"
            )
        return cls(classes, _largest(classes, lambda keep: cls(classes, keep).capacity <= nats))

    @classmethod
    def from_epsilon(cls, classes: int, epsilon: float | int) -> RandomizedResponse:
        """Create the response that keeps as many labels as ε-DP allows: p = e^ε/(e^ε + K − 1).

        Args:
            classes: K, at least 2.
            epsilon: ε of the label, positive and finite.

        Returns:
            The response, with an ε that is never above the given one.

        Raises:
            ValueError: If an argument is out of range.

        Example:
            >>> round(RandomizedResponse.from_epsilon(classes=2, epsilon=1.0).capacity, 4)  # of at most 1 nat
            0.1109
        """
        if not 0 < epsilon < math.inf:
            raise ValueError(f"epsilon = {epsilon}: give a positive and finite number")
        return cls(classes, _largest(classes, lambda keep: cls(classes, keep).epsilon <= epsilon))

    @property
    def flip(self) -> float:
        """Probability of each of the other classes, (1 − p)/(K − 1)."""
        return (1.0 - self.keep) / (self.classes - 1)

    @property
    def capacity(self) -> float:
        """Capacity of one response, nats: ln K + p ln p + (1 − p) ln((1 − p)/(K − 1)).

        The channel is symmetric, so this is the mutual information for equally likely classes. No other
        distribution of labels gives more.
        """
        outcomes = ((1, self.keep), (self.classes - 1, self.flip))
        nats = sum(count * share * math.log(self.classes * share) for count, share in outcomes if share)
        return max(nats, 0.0)

    @property
    def epsilon(self) -> float:
        """ε of the label, ln(p / flip), with δ = 0. It is ∞ if labels are unchanged."""
        return max(math.log(self.keep / self.flip), 0.0) if self.flip else math.inf

    def information(self, draws: int) -> float:
        """Bound the nats that several responses to one label reveal together: min(draws · capacity, ln K).

        Args:
            draws: Number of responses, >= 0.

        Example:
            >>> RandomizedResponse(classes=10, keep=0.5).information(2)  # two epochs with labels drawn in each
            1.0216...
        """
        return min(draws * self.capacity, math.log(self.classes)) if draws else 0.0

    def randomize(
        self, labels: Int[np.ndarray, " n"], uniform: Float[np.ndarray, "2 n"]
    ) -> Int[np.ndarray, " n"]:
        """Draw the response to each label.

        Args:
            labels: From 0 to K − 1.
            uniform: Two independent uniform numbers in [0, 1) for each label, e.g.
                ``SecureDraws().random((2, n))`` of :mod:`leakbound.randomness.sources`. Whoever can reproduce
                these numbers can recover the labels.

        Raises:
            ValueError: If a label is out of range.
        """
        if labels.size and not 0 <= labels.min() <= labels.max() < self.classes:
            raise ValueError(
                f"labels from {labels.min()} to {labels.max()}: labels of {self.classes} classes are from 0 to "
                f"{self.classes - 1}"
            )
        others = 1 + np.floor(uniform[1] * (self.classes - 1)).astype(np.int64)
        return np.where(uniform[0] < self.keep, labels, (labels + others) % self.classes)


def _largest(classes: int, allowed: Callable[[float], bool]) -> float:
    """Find the largest allowed probability of keeping a label, by bisection from an allowed lower end."""
    low = high = 1.0
    low /= max(classes, 2)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if allowed(middle):
            low = middle
        else:
            high = middle
    return low
