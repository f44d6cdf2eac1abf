"""Targets of a defense, each solved for the least noise that meets it, on the safe side, and plans of uses.

Every target becomes weaker with the capacity κ of one use: more leaks, errors fall, records are identified.
So each needs the largest κ that still meets it, a root in one dimension for every shape of the noise.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Num

from leakbound.accounting.leakage import Exposure, Mechanism
from leakbound.accounting.risk import identification_information
from leakbound.channels.channel import Spectrum
from leakbound.channels.covariance import Moments, population_moments
from leakbound.channels.shapes import Shape
from leakbound.engine.calibrations import Calibration, Stage
from leakbound.engine.refusals import GuaranteeError

_FARTHEST = 199.5 * math.log(2.0)  # logarithm of κ beyond which the root is not sought
_TIGHT = 2e-9  # relative, of a capacity that shapes meet from below
_SAFE = 1e-12  # by which κ is lowered, and then twice that, …, until the target is met
_ROUNDING = 1e-9  # relative, of nats that are compared


@dataclass(frozen=True)
class Plan:
    """Limit on the nats of a record, which all ranks share.

    Attributes:
        most: Planned uses with independent noise, None for no limit.
        mechanism: Channel of the engine.
        adds: Whether the target is met as long as nats of all channels stay within those of the planned uses.
        frozen: Whether noise is frozen.
        seeded: Whether a seed repeats it.
        records: Records of one owner, all of which may have the planned uses.
    """

    most: int | None
    mechanism: Mechanism
    adds: bool
    frozen: bool
    seeded: bool
    records: int = 1

    @property
    def once(self) -> bool:
        """True if every draw for a record gives the same copy, in whatever run."""
        return self.frozen and self.seeded

    @property
    def limit(self) -> float:
        """Nats of all planned uses, of all records of an owner that the plan is for. They are ∞ without a limit."""
        return math.inf if self.most is None else self.records * self.mechanism.nats(self.most)

    def uses_of_each(self, records: int) -> int:
        """Count the uses that each of so many records of one owner can have, at most the planned ones."""
        fits = range(1, 1 + (self.most or 0))
        limit = self.limit * (1.0 + _ROUNDING)
        return bisect_left(fits, True, key=lambda uses: records * self.mechanism.nats(uses) > limit)

    def over_limit(self, exposure: Exposure) -> Int[np.ndarray, " over"]:
        """Return the places of records about which more nats are revealed than by the planned uses.

        Args:
            exposure: What the ledger has of each record.
        """
        if self.most is None:
            return np.zeros(0, np.int64)
        # Nats grow with uses. Those of no more uses than planned, and of no other channel, are not computed.
        uses = exposure.fresh_uses + exposure.parallel
        places = np.flatnonzero(((uses > self.most) | (exposure.others > 0)) & (exposure.fresh_uses > 0))
        if not len(places):
            return places
        others = exposure.others[places]
        limit = self.limit * (1.0 + _ROUNDING)
        over = self.mechanism.all_nats(uses[places]) + others > limit
        over |= exposure.fresh_uses[places] > self.most
        return places[over | ((others > 0) & (not self.adds))]


class Target(ABC):
    """A limit on what an attacker learns from all uses of a record together.

    Attributes:
        uses: Planned uses of each record with fresh noise, and the most that are released. None for no limit.
            Frozen noise shows a record once, so leave it out.
        records: Records of one owner, all of which together have the limit and may have the planned uses.
        needs_uses: Whether the target limits all uses together.
    """

    uses: int | None
    records: int = 1
    needs_uses: ClassVar[bool] = True

    def fresh_uses(self, frozen: bool) -> int:
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

    def plan(
        self,
        calibration: Calibration,
        most: int | None,
        accepted: float | int | None,
        *,
        frozen: bool,
        draws: str | None,
    ) -> Plan:
        """Plan the uses of a record through a channel that meets the target.

        Args:
            calibration: The channel, with the moments that it was calibrated to.
            most: Uses with independent noise, None for no limit.
            accepted: Nats of all planned uses that the owner accepts in place of the calibrated ones.
            frozen: Whether noise is frozen.
            draws: Name of noise that a seed repeats, None for secure noise.
        """
        name = calibration.channel.shape + (f", frozen, {draws}" if frozen and draws else "")
        if (weights := calibration.spectrum.weights) is not None:  # equal ratios may be along other values
            name = f"{blake2b(weights.tobytes(), digest_size=8).hexdigest()} {name}"
        nats = None if accepted is None else float(accepted)
        axes, precisions = calibration.axes()
        mechanism = Mechanism(name, calibration.ratios, self.uses or 1, nats, axes, precisions)
        # Nats of several channels have a sum, their errors have none.
        adds = not isinstance(self, Reconstruction)
        return Plan(most, mechanism, adds, frozen=frozen, seeded=draws is not None, records=self.records)

    @abstractmethod
    def excess(self, calibration: Calibration, uses: int) -> float:
        """Return a number above 0 where the target is missed, which grows with the capacity of one use."""

    def calibrate(
        self,
        records: Num[np.ndarray, "n ..."],
        shape: Shape,
        weights: Float[np.ndarray, " d"] | None,
        uses: int,
        progress: Stage = lambda stage, done: None,
    ) -> Calibration:
        """Calibrate the channel of a shape that meets the target with the least noise.

        Args:
            records: (n, ...), public or auxiliary ones.
            shape: Shape of the noise.
            weights: Relative noise variances, for the shape ``personalized``.
            uses: Uses of each record with independent noise.
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
        calibration = self.solve(shape, spectrum, moments, uses)
        progress("done", 1.0)
        return calibration

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, uses: int) -> Calibration:
        """Find the channel of a shape that meets the target with the least noise.

        Args:
            shape: One of :mod:`leakbound.channels.shapes`.
            spectrum: Spectrum of the data, as the shape decomposes them.
            moments: Mean and covariance of the data.
            uses: Uses of each record with independent noise.

        Raises:
            ValueError: If float64 cannot hold the noise that it needs.
        """
        from scipy.optimize import brentq  # slow import

        if uses == 1 and isinstance(self, Leakage | Identification):  # most shapes solve it for themselves
            solved = Capacity(self.nats / self.records).solve(shape, spectrum, moments, uses)
            if -_TIGHT * self.nats <= self.excess(solved, uses) <= 0:
                return solved

        def calibrated(log_capacity: float) -> Calibration:
            return Calibration(shape.calibrate(spectrum, math.exp(log_capacity)), spectrum, moments)

        def missed(log_capacity: float) -> float:
            return self.excess(calibrated(log_capacity), uses)

        # Brackets of ln κ: halved until the target is met, doubled until it is missed.
        low = high = 0.0
        while low > -_FARTHEST and missed(low) > 0:
            low -= math.log(2.0)
        while high < _FARTHEST and missed(high) <= 0:
            high += math.log(2.0)
        root = brentq(missed, low, high, xtol=1e-14) if low < high else low
        # The safe end: the root may miss the target by rounding.
        step = _SAFE
        while missed(root) > 0:
            root -= step
            step *= 2.0
        return calibrated(root)


class _TargetWithUses(Target):
    """A target with planned uses and records of an owner."""

    def __repr__(self) -> str:
        arguments = {each.name: getattr(self, each.name) for each in fields(self)}  # type: ignore[arg-type]
        stated = {name: value for name, value in arguments.items() if (name, value) != ("records", 1)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in stated.items())})"

    def _check_counts(self) -> None:
        """Refuse uses and records that are not whole and positive numbers."""
        counts = {"uses": 1 if self.uses is None else self.uses, "records": self.records}
        for name, count in counts.items():
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise GuaranteeError(
                    f"{type(self).__name__}({name}={count!r}): give a whole number of at least 1"
                )


class _PositiveTarget(_TargetWithUses):
    """A limit that one positive number states, in the field that ``amount`` names."""

    amount: ClassVar[str] = "nats"

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        value = getattr(self, self.amount)
        if not 0 < value < math.inf:
            raise GuaranteeError(
                f"{type(self).__name__}({self.amount}={value!r}): give a finite number above 0"
            )
        self._check_counts()


@dataclass(frozen=True, repr=False)
class Capacity(_PositiveTarget):
    """Limit the nats that each use of a record reveals, as the published defense does.

    They are an average over records like the calibration's: an unusual record can reveal more.

    Attributes:
        nats: Capacity κ, > 0.
        uses: Most uses of a record, >= 1, or None for no limit.
        records: Most records of one owner, each of which may have these uses, >= 1.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Capacity(4.0, uses=10)
        Capacity(nats=4.0, uses=10)
    """

    needs_uses: ClassVar[bool] = False
    nats: float | int
    uses: int | None = None
    records: int = field(default=1, kw_only=True)

    def excess(self, calibration: Calibration, uses: int) -> float:
        """Return the nats of one use above κ."""
        return calibration.information(1) - self.nats

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, uses: int) -> Calibration:
        """Calibrate the channel of this capacity, which each shape solves for directly."""
        return Calibration(shape.calibrate(spectrum, float(self.nats)), spectrum, moments)


@dataclass(frozen=True, repr=False)
class Leakage(_PositiveTarget):
    """Limit the nats that all uses of a record, or of all records of an owner, reveal together.

    They are an average over records like the calibration's: an unusual record can reveal more.

    Attributes:
        nats: Total, > 0.
        uses: Planned uses of each record, >= 1, or None for frozen noise.
        records: Most records of one owner, >= 1. Nats of different records add up whatever they have in common,
            so that each gets its part of the total.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> Leakage(60, uses=10)
        Leakage(nats=60, uses=10)
    """

    nats: float | int
    uses: int | None = None
    records: int = field(default=1, kw_only=True)

    def excess(self, calibration: Calibration, uses: int) -> float:
        """Return the nats of all uses above the total."""
        return self.records * calibration.information(uses) - self.nats


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

    def excess(self, calibration: Calibration, uses: int) -> float:
        """Return the logarithm of the required error over the reached one."""
        reached = calibration.linear_error(uses)
        return math.log(self.mse) - math.log(reached) if reached > 0 else math.inf

    def solve(self, shape: Shape, spectrum: Spectrum, moments: Moments, uses: int) -> Calibration:
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
        return super().solve(shape, spectrum, moments, uses)


@dataclass(frozen=True, repr=False)
class Identification(_TargetWithUses):
    """Limit the probability of identifying a record among M equally likely ones, from all its uses.

    This is Fano's inequality without its slack. It holds for every attacker, on average over lists of records
    from the same distribution with the label of the true one: a channel does not change labels, by which
    others are ruled out.

    Attributes:
        probability: Most that the attacker may reach, in (1/M, 1).
        among: Number M of records, >= 2, given by name.
        uses: Planned uses of each record, >= 1, or None for frozen noise.
        records: Most records of one owner, >= 1, by all of which together the owner may be identified.

    Raises:
        GuaranteeError: If a value is out of range.

    Example:
        >>> round(Identification(0.01, among=1000, uses=10).nats, 4)
        0.0141
    """

    probability: float | int
    uses: int | None = None
    among: int = field(kw_only=True)
    records: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse values that are out of range."""
        if self.among < 2:
            raise GuaranteeError(
                f"Identification(among={self.among}): identification takes at least 2, so give more"
            )
        if not 1.0 / self.among < self.probability < 1.0:
            raise GuaranteeError(
                f"Identification(probability={self.probability:g}): give one between {1 / self.among:g}, which "
                "guessing reaches, and 1"
            )
        self._check_counts()

    @property
    def nats(self) -> float:
        """Information about the index that the probability allows."""
        return identification_information(self.probability, self.among)

    def excess(self, calibration: Calibration, uses: int) -> float:
        """Return the nats of all uses above those that the probability allows."""
        return self.records * calibration.information(uses) - self.nats


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
