"""Targets of a defense, each solved for the least noise that meets it, on the safe side.

Every target becomes weaker with the capacity κ of one use: more leaks, errors fall, records are identified.
So each asks for the largest κ that still meets it, a root in one dimension, found for whatever shape the
noise has.
"""

from __future__ import annotations

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

_STEPS = 200  # doublings or halvings of κ until the root lies between two
_TIGHT = 2e-9  # relative, of a capacity that shapes meet from below
_SAFE = 1e-12  # by which κ is lowered, and then twice that, …, until the target is met


@dataclass(frozen=True)
class Calibration:
    """A channel beside the data that it was calibrated from.

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
        """Refuse records that vary where the data do not, by more than the noise hides there.

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
        """Nats that some looks with independent noise tell together of one record, at most."""
        return joint_information(self.ratios, looks)

    def linear_error(self, looks: int) -> float:
        """Squared error, per value, of the best linear estimate of a record from some looks."""
        channel, spectrum = self.channel, self.spectrum
        if not looks:
            return self.moments.total_variance / channel.dimension
        if spectrum.weights is not None:
            total = linear_mmse_from_covariances(self.moments.covariance, channel.variances, float(looks))
        else:
            signal = (
                spectrum.data_eigenvalues if spectrum.data_eigenvalues is not None else spectrum.eigenvalues
            )
            # A gain in front of the noise is the same as noise divided by it.
            gain = np.ones_like(signal) if channel.gain is None else channel.gain
            noise = np.divide(channel.variances, gain**2, out=np.full_like(signal, math.inf), where=gain > 0)
            total = linear_mmse(signal, noise, float(looks))
        return total / channel.dimension


class Target(ABC):
    """A limit on what an attacker gets from all looks at a record together.

    Attributes:
        uses: Planned uses of each record with fresh noise, and the most that are released; None for no limit.
            Frozen noise shows a record once, so it takes none.
        needs_uses: Whether the target limits all uses together.
    """

    uses: int | None
    needs_uses: ClassVar[bool] = True

    def looks(self, frozen: bool) -> int:
        """Looks with independent noise that the target has to hold for.

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
        """A number above 0 where the target is missed; it grows with the capacity of one use."""

    def calibrate(
        self,
        records: Num[np.ndarray, "n ..."],
        shape: Shape,
        weights: Float[np.ndarray, " d"] | None,
        looks: int,
        progress: Stage = silent,
    ) -> Calibration:
        """Calibrate to records the channel of a shape that meets the target with the least noise.

        Args:
            records: (n, ...), public or auxiliary ones.
            shape: Of the noise.
            weights: Relative noise variances, for the shape ``personalized``.
            looks: Looks with independent noise at each record.
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
        """Channel of least noise, among those of a shape, that meets the target for a number of looks.

        Args:
            shape: Of :mod:`leakbound.channels.shapes`.
            spectrum: Of the data, as the shape decomposes them.
            moments: Mean and covariance of the data.
            looks: Looks with independent noise at each record.

        Raises:
            ValueError: If float64 cannot hold the noise that it needs.
        """
        if looks == 1 and isinstance(self, Leakage | Naming):  # most shapes solve it for themselves
            made = Capacity(self.nats).solve(shape, spectrum, moments, looks)
            if -_TIGHT * self.nats <= self.excess(made, looks) <= 0:
                return made

        def calibrated(log_capacity: float) -> Calibration:
            return Calibration(shape.calibrate(spectrum, math.exp(log_capacity)), spectrum, moments)

        def missed(log_capacity: float) -> float:
            return self.excess(calibrated(log_capacity), looks)

        low = high = 0.0
        for _ in range(_STEPS):
            if missed(low) <= 0:
                break
            low -= math.log(2.0)
        for _ in range(_STEPS):
            if missed(high) > 0:
                break
            high += math.log(2.0)
        root = brentq(missed, low, high, xtol=1e-14) if low < high else low
        step = _SAFE
        while missed(root) > 0:
            root, step = root - step, 2.0 * step
        return calibrated(root)


@dataclass(frozen=True)
class Capacity(Target):
    """At most this many nats at each use of a record, as the published defense counts.

    Attributes:
        nats: κ, > 0.
        uses: Most uses of a record, >= 1; None for no limit.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Capacity(4.0, uses=10)
        Capacity(nats=4.0, uses=10)
    """

    needs_uses: ClassVar[bool] = False
    nats: float | int
    uses: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        _check_positive("Capacity", "nats", self.nats)
        _check_uses("Capacity", self.uses)

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Nats of one use above κ."""
        return calibration.information(1) - self.nats

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, looks: int) -> Calibration:
        """Channel of this capacity, which shapes solve for themselves."""
        return Calibration(shape.calibrate(spectrum, float(self.nats)), spectrum, moments)


@dataclass(frozen=True)
class Leakage(Target):
    """At most this many nats of each record from all its uses together.

    Attributes:
        nats: Total, > 0.
        uses: Planned uses of each record, >= 1; None for frozen noise.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Leakage(60, uses=10)
        Leakage(nats=60, uses=10)
    """

    nats: float | int
    uses: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        _check_positive("Leakage", "nats", self.nats)
        _check_uses("Leakage", self.uses)

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Nats of all looks above the total."""
        return calibration.information(looks) - self.nats


@dataclass(frozen=True)
class Reconstruction(Target):
    """At least this squared error, per value, for the best linear estimate of a record from all its uses together.

    For Gaussian records no attacker does better. Of other records, images among them, one that is not linear
    can.

    Attributes:
        mse: Squared units of the data, > 0 and below the variance per value, which guessing the mean has.
        uses: Planned uses of each record, >= 1; None for frozen noise.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Reconstruction(mse=0.01, uses=10)
        Reconstruction(mse=0.01, uses=10)
    """

    mse: float | int
    uses: int | None = None

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        _check_positive("Reconstruction", "mse", self.mse)
        _check_uses("Reconstruction", self.uses)

    def excess(self, calibration: Calibration, looks: int) -> float:
        """Logarithm of the error that is aimed at over the one reached."""
        reached = calibration.linear_error(looks)
        return math.log(self.mse) - math.log(reached) if reached > 0 else math.inf

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, looks: int) -> Calibration:
        """Channel of least noise that leaves this error.

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
    """At most this probability of identifying the true one of M equally likely records from all its uses together.

    Fano's inequality without its slack, for every attacker, on average over lists of records of the law.

    Attributes:
        probability: In (1/M, 1).
        candidates: M >= 2.
        uses: Planned uses of each record, >= 1; None for frozen noise.

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
                f"{name}({self.word}={self.candidates}): naming takes at least 2, so give more"
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
        """Nats of all looks above those that the probability allows."""
        return calibration.information(looks) - self.nats


@dataclass(frozen=True)
class Identification(Naming):
    """:class:`Naming` in words.

    Example:
        >>> Identification(0.01, among=1000, uses=10).nats == Naming(0.01, 1000, 10).nats
        True
    """

    word: ClassVar[str] = "among"
    candidates: int = field(init=False, repr=False)
    among: int = field(kw_only=True)

    def __post_init__(self) -> None:
        """Take the number of candidates; refuse values that are out of range."""
        object.__setattr__(self, "candidates", self.among)
        super().__post_init__()


def as_target(given: Any) -> Target:
    """A target as it is; a number as the capacity of one use.

    Raises:
        GuaranteeError: If it is something else.
    """
    if isinstance(given, Target):
        return given
    if isinstance(given, int | float) and not isinstance(given, bool):
        return Capacity(float(given))
    raise GuaranteeError(
        f"target = {given!r}: give Capacity(nats), Leakage(nats, uses), Reconstruction(mse, uses) or "
        "Identification(probability, among=M, uses=K)"
    )


def _check_positive(target: str, name: str, value: float | int) -> None:
    """Refuse a value that is not positive and finite."""
    if not 0 < value < math.inf:
        raise GuaranteeError(f"{target}({name}={value!r}): give a finite number above 0")


def _check_uses(target: str, uses: int | None) -> None:
    """Refuse a number of uses that is not whole and positive."""
    if uses is not None and (isinstance(uses, bool) or not isinstance(uses, int) or uses < 1):
        raise GuaranteeError(f"{target}(uses={uses!r}): give a whole number of at least 1")
