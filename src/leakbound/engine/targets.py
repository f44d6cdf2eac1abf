"""Targets of a defense, each solved for the least noise that meets it, on the safe side.

Every target becomes weaker with the capacity κ of one use: more leaks, errors fall, records are identified.
So each needs the largest κ that still meets it, a root in one dimension for every shape of the noise.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Num
from scipy.optimize import brentq

from leakbound.accounting.gaussian import linear_mmse, linear_mmse_from_covariances
from leakbound.accounting.leakage import joint_information
from leakbound.accounting.naming import identification_information
from leakbound.channels.channel import GaussianChannel, Spectrum, signal_to_noise
from leakbound.channels.covariance import Moments, population_moments
from leakbound.channels.observed import unspanned
from leakbound.channels.shapes import Shape
from leakbound.engine.progress import Stage, silent
from leakbound.engine.refusals import GuaranteeError

_FARTHEST = 199.5 * math.log(2.0)  # logarithm of κ beyond which the root is not sought
_TIGHT = 2e-9  # relative, of a capacity that shapes meet from below
_SAFE = 1e-12  # by which κ is lowered, and then twice that, …, until the target is met


@dataclass(frozen=True)
class Calibration:
    """A channel and the data that it was calibrated from.

    Attributes:
        channel: The calibrated channel.
        spectrum: Spectrum of its shape.
        moments: Mean and covariance of the calibration data.
    """

    channel: GaussianChannel
    spectrum: Spectrum
    moments: Moments

    @cached_property
    def ratios(self) -> Float[np.ndarray, " d"]:
        """Variance ratios of signal and noise of one use, along axes that decouple both."""
        return signal_to_noise(self.channel, self.spectrum)

    def check_directions(self, records: Num[np.ndarray, "n d"]) -> None:
        """Refuse records that vary where the calibration data do not, by more than the noise hides there.

        Raises:
            GuaranteeError: If one does (:func:`leakbound.channels.observed.unspanned`).
        """
        if unspanned(records, self.channel, self.spectrum):
            raise GuaranteeError(
                f"a record varies in directions in which no calibration record does, and {self.channel.shape} noise "
                "hides next to nothing there: take shape='natural', calibrate to records that vary there too, or leave "
                "out the columns in which these do not"
            )

    def information(self, looks: int) -> float:
        """Bound the nats that all uses of a record with independent noise reveal together."""
        return joint_information(self.ratios, looks)

    def linear_error(self, looks: int) -> float:
        """Compute the squared error, per value, of the best linear estimate of a record from all its uses."""
        channel, spectrum = self.channel, self.spectrum
        if not looks:
            return self.moments.total_variance / channel.dimension
        if spectrum.weights is not None:
            total = linear_mmse_from_covariances(self.moments.covariance, channel.variances, float(looks))
        else:
            signal = spectrum.eigenvalues if spectrum.data_eigenvalues is None else spectrum.data_eigenvalues
            # A gain in front of the noise is the same as noise divided by it.
            gain = np.ones_like(signal) if channel.gain is None else channel.gain
            noise = np.divide(channel.variances, gain**2, out=np.full_like(signal, math.inf), where=gain > 0)
            total = linear_mmse(signal, noise, float(looks))
        return total / channel.dimension


class Target(ABC):
    """A limit on what an attacker learns from all uses of a record together.

    Attributes:
        uses: Planned uses of each record with fresh noise, and the most that are released. None for no limit.
            Frozen noise shows a record once, so leave it out.
        needs_uses: Whether the target limits all uses together.
    """

    uses: int | None
    needs_uses: ClassVar[bool] = True

    def looks(self, frozen: bool) -> int:
        """Count the uses with independent noise that the target has to hold for.

        Raises:
            GuaranteeError: If the number of uses is missing, or has no effect.
        """
        if frozen and self.uses not in (None, 1):
            raise GuaranteeError(
                f"uses = {self.uses} has no effect on frozen noise, which shows a record once: leave uses out"
            )
        if not frozen and self.uses is None and self.needs_uses:
            raise GuaranteeError(
                f"{self}: fresh noise reveals more at each use, so give the planned uses of a record, e.g. "
                "uses=number_of_epochs, or take noise='frozen'"
            )
        return self.uses or 1

    @abstractmethod
    def excess(self, calibration: Calibration, looks: int) -> float:
        """Return a number above 0 where the target is missed, which grows with the capacity of one use."""

    def calibrate(
        self,
        records: Num[np.ndarray, "n ..."],
        shape: Shape,
        weights: Float[np.ndarray, " d"] | None,
        looks: int,
        progress: Stage = silent,
    ) -> Calibration:
        """Calibrate the channel of a shape that meets the target with the least noise.

        Args:
            records: (n, ...), public or auxiliary ones.
            shape: Shape of the noise.
            weights: Relative noise variances, for the shape ``personalized``.
            looks: Uses of each record with independent noise.
            progress: Called when a stage begins.

        Raises:
            GuaranteeError: If all records are equal, or no channel meets the target.
            ValueError: If the weights do not fit the shape, or float64 cannot hold the noise that it needs.
        """
        progress("covariance", 0.0)
        moments = population_moments(records, progress)
        if not moments.total_variance > 0:
            raise GuaranteeError(
                "all calibration records are equal, so there is nothing to hide: give other data"
            )
        progress("principal directions", 0.8)
        spectrum = shape.decompose(moments, weights=weights)
        progress("noise for the target", 0.95)
        calibration = self.solve(shape, spectrum, moments, looks)
        progress("done", 1.0)
        return calibration

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, looks: int) -> Calibration:
        """Find the channel of a shape that meets the target with the least noise.

        Args:
            shape: One of :mod:`leakbound.channels.shapes`.
            spectrum: Spectrum of the data, as the shape decomposes them.
            moments: Mean and covariance of the data.
            looks: Uses of each record with independent noise.

        Raises:
            ValueError: If float64 cannot hold the noise that it needs.
        """
        if looks == 1 and isinstance(self, Leakage | Naming):  # most shapes solve it for themselves
            solved = Capacity(self.nats).solve(shape, spectrum, moments, looks)
            if -_TIGHT * self.nats <= self.excess(solved, looks) <= 0:
                return solved

        def calibrated(log_capacity: float) -> Calibration:
            return Calibration(shape.calibrate(spectrum, math.exp(log_capacity)), spectrum, moments)

        def missed(log_capacity: float) -> float:
            return self.excess(calibrated(log_capacity), looks)

        low = high = 0.0
        while low > -_FARTHEST and missed(low) > 0:
            low -= math.log(2.0)
        while high < _FARTHEST and missed(high) <= 0:
            high += math.log(2.0)
        root = brentq(missed, low, high, xtol=1e-14) if low < high else low
        step = _SAFE
        while missed(root) > 0:
            root -= step
            step *= 2.0
        return calibrated(root)


class _PositiveTarget(Target):
    """A limit that one positive number states, in the field that ``amount`` names."""

    amount: ClassVar[str] = "nats"

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        value = getattr(self, self.amount)
        if not 0 < value < math.inf:
            raise GuaranteeError(
                f"{type(self).__name__}({self.amount}={value!r}): give a finite number above 0"
            )
        _check_uses(type(self).__name__, self.uses)


@dataclass(frozen=True)
class Capacity(_PositiveTarget):
    """Limit the nats that each use of a record reveals, as the published defense does.

    They are an average over records like the calibration's: an unusual record can reveal more.

    Attributes:
        nats: Capacity κ, > 0.
        uses: Most uses of a record, >= 1, or None for no limit.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Capacity(4.0, uses=10)
        Capacity(nats=4.0, uses=10)
    """

    needs_uses: ClassVar[bool] = False
    nats: float | int
    uses: int | None = None

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Return the nats of one use above κ."""
        return calibration.information(1) - self.nats

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, looks: int) -> Calibration:
        """Calibrate the channel of this capacity, which each shape solves for directly."""
        return Calibration(shape.calibrate(spectrum, float(self.nats)), spectrum, moments)


@dataclass(frozen=True)
class Leakage(_PositiveTarget):
    """Limit the nats that all uses of a record reveal together.

    They are an average over records like the calibration's: an unusual record can reveal more.

    Attributes:
        nats: Total, > 0.
        uses: Planned uses of each record, >= 1, or None for frozen noise.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Leakage(60, uses=10)
        Leakage(nats=60, uses=10)
    """

    nats: float | int
    uses: int | None = None

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Return the nats of all uses above the total."""
        return calibration.information(looks) - self.nats


@dataclass(frozen=True)
class Reconstruction(_PositiveTarget):
    """Keep the best linear estimate of a record, from all its uses together, above a squared error.

    For Gaussian records no attacker does better. For other records, such as images, a nonlinear estimate can.

    Attributes:
        mse: Squared units of the data, > 0 and below the variance per value, which guessing the mean has.
        uses: Planned uses of each record, >= 1, or None for frozen noise.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Reconstruction(mse=0.01, uses=10)
        Reconstruction(mse=0.01, uses=10)
    """

    amount: ClassVar[str] = "mse"
    mse: float | int
    uses: int | None = None

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Return the logarithm of the required error over the reached one."""
        reached = calibration.linear_error(looks)
        return math.log(self.mse) - math.log(reached) if reached > 0 else math.inf

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, looks: int) -> Calibration:
        """Find the channel of least noise that leaves this error.

        Raises:
            GuaranteeError: If the error is that of guessing the mean, or more.
        """
        most = moments.total_variance / moments.dimension
        if not self.mse < most * (1.0 - 1e-9):
            raise GuaranteeError(
                f"Reconstruction(mse={self.mse:g}): guessing the mean already errs by {most:.4g} per value, so ask for "
                "less than that"
            )
        return super().solve(shape, spectrum, moments, looks)


@dataclass(frozen=True)
class Naming(Target):
    """Limit the probability of identifying a record among M equally likely ones, from all its uses.

    This is Fano's inequality without its slack. It holds for every attacker, on average over lists of records
    from the same distribution.

    Attributes:
        probability: Most that the attacker may reach, in (1/M, 1).
        candidates: Number M of records, >= 2.
        uses: Planned uses of each record, >= 1, or None for frozen noise.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> round(Naming(0.01, candidates=1000, uses=10).nats, 4)
        0.0141
    """

    word: ClassVar[str] = "candidates"
    probability: float | int
    candidates: int
    uses: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        name = type(self).__name__
        if self.candidates < 2:
            raise GuaranteeError(
                f"{name}({self.word}={self.candidates}): identification takes at least 2, so give more"
            )
        if not 1.0 / self.candidates < self.probability < 1.0:
            raise GuaranteeError(
                f"{name}(probability={self.probability:g}): give one between {1 / self.candidates:g}, which guessing "
                "reaches, and 1"
            )
        _check_uses(name, self.uses)

    @property
    def nats(self) -> float:
        """Information about the index that the probability allows."""
        return identification_information(self.probability, self.candidates)

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Return the nats of all uses above those that the probability allows."""
        return calibration.information(looks) - self.nats


@dataclass(frozen=True)
class Identification(Naming):
    """Limit the probability of identification. It is :class:`Naming` with its arguments in words.

    Example:
        >>> Identification(0.01, among=1000, uses=10).nats == Naming(0.01, 1000, 10).nats
        True
    """

    word: ClassVar[str] = "among"
    candidates: int = field(init=False, repr=False)
    among: int = field(kw_only=True)

    def __post_init__(self) -> None:
        """Take the number of candidates and refuse values that are out of range."""
        object.__setattr__(self, "candidates", self.among)
        super().__post_init__()


def as_target(target: Any) -> Target:
    """Return a target as it is, and a number as the capacity of one use.

    Raises:
        GuaranteeError: If it is something else.
    """
    if isinstance(target, Target):
        return target
    if isinstance(target, int | float) and not isinstance(target, bool):
        return Capacity(float(target))
    raise GuaranteeError(
        f"target = {target!r}: give Capacity(nats), Leakage(nats, uses), Reconstruction(mse, uses) or "
        "Identification(probability, among=M, uses=K)"
    )


def _check_uses(target: str, uses: int | None) -> None:
    """Refuse a number of uses that is not whole and positive."""
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise GuaranteeError(f"{target}(uses={uses!r}): give a whole number of at least 1")
