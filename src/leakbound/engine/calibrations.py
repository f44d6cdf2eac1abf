"""A calibrated channel, the share of records that it leaves, and whether records are like the calibration's."""

from __future__ import annotations

import itertools
import math
import sys
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Num
from scipy.special import bdtr

from leakbound.accounting.gaussian import linear_mmse, linear_mmse_from_covariances
from leakbound.accounting.leakage import joint_information
from leakbound.channels.channel import GaussianChannel, Spectrum, signal_to_noise
from leakbound.channels.covariance import Moments
from leakbound.channels.observed import (
    REFUSED,
    OwnCapacity,
    different_rows,
    own_capacity,
    sample_size,
    unspanned,
)
from leakbound.channels.shapes import shape_named
from leakbound.engine.refusals import CapacityWarning, GuaranteeError

Stage = Callable[[str, float], None]
"""Called when a stage begins: its name, and the share of the work that is done."""
_PRINCIPAL = ("natural", "white", "least_power", "rate_distortion")  # shapes along principal directions
_LARGE = 500  # values of a record, from which calibration takes seconds or more
_SELDOM = 0.01  # probability with which a plan may end a training by chance
_WIDTH = 24  # of the bar, in characters
_EVERY = 10.0  # seconds from line to line where there is no terminal
_HALF = 0.5
_UNCERTAIN = 0.05  # relative standard error of the total variance, from which tails are compared
_LONG = 2.0  # times the error that Gaussian records of the same spectrum have
_DIFFERENT = 0.9  # share of calibration records, below which copies are warned of
_UNLIKE = 10.0  # ratio of standard deviations, from which units are said to differ
_READ = 256  # records of a dataset that are read before the first release
# Records at the first comparison, which is made again when they have quadrupled, and after an epoch.
_FIRST = 16
_FEWEST_VALUES = 16  # values of a record, below which different records are often near each other
_MOST_VALUES = 4096  # values that are compared: whitening more takes too long
_NUMBERS = 12  # coarse numbers of a record, independent of each other
_CELL = 0.1  # width of a cell, in standard deviations of such a number
_RIDGE = 0.1  # of the mean variance, so that directions without variance do not turn rounding into distance


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

    def axes(self) -> tuple[str, Float[np.ndarray, " d"] | None]:
        """Name the covariance that the noise has its axes from, and give its precisions where they are the values.

        Returns:
            The name, empty if the axes are not known, as those of a shape of one's own. Precisions along values,
            or None where the axes are principal directions.
        """
        if self.spectrum.weights is not None and self.moments.formed:
            return self.moments.name, 1.0 / self.channel.variances
        return (self.moments.name if self.channel.shape in _PRINCIPAL else ""), None

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

    def information(self, uses: int) -> float:
        """Bound the nats that all uses of a record with independent noise reveal together."""
        return joint_information(self.ratios, uses)

    def linear_error(self, uses: int) -> float:
        """Compute the squared error, per value, of the best linear estimate of a record from all its uses."""
        channel = self.channel
        spectrum = self.spectrum
        if not uses:
            return self.moments.total_variance / channel.dimension
        if spectrum.weights is not None:
            total = linear_mmse_from_covariances(self.moments.covariance, channel.variances, float(uses))
        else:
            signal = spectrum.eigenvalues if spectrum.data_eigenvalues is None else spectrum.data_eigenvalues
            # A gain in front of the noise is the same as noise divided by it.
            gain = np.ones_like(signal) if channel.gain is None else channel.gain
            noise = np.divide(channel.variances, gain**2, out=np.full_like(signal, math.inf), where=gain > 0)
            total = linear_mmse(signal, noise, float(uses))
        return total / channel.dimension


def recovered_share(calibration: Calibration, uses: int) -> float:
    """Compute the share of a record's variance that the best linear estimate from all its copies recovers.

    Args:
        calibration: Channel and the data that it was calibrated to.
        uses: Copies, each with its own noise.
    """
    return 1.0 - calibration.linear_error(uses) / calibration.linear_error(0)


def visible_share(calibration: Calibration, uses: int) -> float:
    """Compute the share of the variance of the mean of all copies, value by value, that is not noise.

    Args:
        calibration: As in :func:`recovered_share`.
        uses: Copies, each with its own noise.
    """
    channel = calibration.channel
    if channel.gain is not None:  # it shrinks what it cannot show, so that values never look noisy
        return 1.0
    signal = calibration.linear_error(0)
    return signal / (signal + float(channel.pixel_variances().mean()) / uses)


def nats_for_half(share: Callable[[Calibration, int], float], calibration: Calibration, uses: int) -> float:
    """Find the nats of all copies at which a share is one half.

    Args:
        share: Share that grows with the capacity, such as :func:`recovered_share`, below one half for
            ``calibration``.
        calibration: Channel and the data that it was calibrated to.
        uses: Copies, each with its own noise.

    Returns:
        Nats that all copies together reveal at most.
    """
    from scipy.optimize import brentq  # slow import

    shape = shape_named(calibration.channel.shape)

    def made(doublings: float) -> Calibration:
        channel = shape.calibrate(calibration.spectrum, calibration.information(1) * 2.0**doublings)
        return Calibration(channel, calibration.spectrum, calibration.moments)

    high = 1.0
    while share(made(high), uses) < _HALF:
        high += 1.0
    root = brentq(lambda doublings: share(made(doublings), uses) - _HALF, 0.0, high, xtol=1e-4)
    return float(made(root).information(uses))


class OwnMoments:
    """Compute the capacity by the records' own moments, from a sample that stays in memory.

    The sample is chosen by content, so the same records give the same numbers, whatever their order.

    Others can see a stop, which reveals that the records' moments were too large.

    Args:
        calibration: The channel, with the moments that it was calibrated to.
        uses: Planned uses of a record with independent noise.
        accepted: Nats of all planned uses together that the user accepts. None for those of the calibration.

    Raises:
        GuaranteeError: If ``accepted`` is not positive.
    """

    def __init__(self, calibration: Calibration, uses: int, accepted: Any) -> None:
        check_accepted(accepted)
        self._calibration = calibration
        self._uses = uses
        self._accepted = accepted
        self._size = sample_size(calibration.channel.dimension)
        self.forget()

    def forget(self) -> None:
        """Forget all records, also those of another client."""
        self._rows: dict[bytes, Num[np.ndarray, " d"]] = {}
        self._added = 0
        self._compared = 0
        self._warned = False
        self._next = _FIRST
        self._names: set[int] = set()
        self._capacity: OwnCapacity | None = None

    def check_dataset(
        self, count: int, record: Callable[[int], Any], fits: Callable[[Any], bool]
    ) -> dict[int, Num[np.ndarray, " d"]]:
        """Compare some records of a dataset with the calibration, before the first release.

        Args:
            count: Number of its records.
            record: Reads the input of one, as a tensor.
            fits: Whether inputs (batch, ...) are of the form that the channel was calibrated for.

        Returns:
            These records by their places, a random sample of those that are of this form.

        Raises:
            GuaranteeError: As :meth:`check`, or if one varies where no calibration record does. Records of
                another form are refused when they are released.
        """
        sample = np.random.default_rng(count).permutation(count)[: min(_READ, self._size)]
        inputs = {int(index): record(int(index)) for index in sample}
        fitting = {place: values.flatten().numpy() for place, values in inputs.items() if fits(values[None])}
        if fitting:
            rows = np.stack([*fitting.values()])
            self._calibration.check_directions(rows)
            self.check(rows)
        return fitting

    def sample(self, rows: Num[np.ndarray, "n d"]) -> Num[np.ndarray, "sample d"]:
        """Sample as many of these records as are compared, each once and by content."""
        return np.stack([row for _, row in self._least(different_rows(rows))])

    def _least(
        self, rows: Mapping[bytes, Num[np.ndarray, " d"]]
    ) -> list[tuple[bytes, Num[np.ndarray, " d"]]]:
        """Return the digests and rows of a sample, by digest."""
        return [(digest, rows[digest]) for digest in sorted(rows)[: self._size]]

    def add(self, rows: Num[np.ndarray, "n d"], names: Sequence[Hashable]) -> None:
        """Add records whose names are new to the sample, and compare when their number has quadrupled.

        Raises:
            GuaranteeError: As :meth:`check`. The rows then count as not added.
        """
        new = {name: row for row, name in enumerate(names) if hash(name) not in self._names}
        if not new:
            return
        rows = rows[list(new.values())]
        before = self._rows, self._added
        fresh = different_rows(rows)
        if len(self._rows) == self._size:  # in the order of digests, of which the sample has the least
            largest = next(reversed(self._rows))
            fresh = {digest: row for digest, row in fresh.items() if digest < largest}
        if fresh:
            copies = {digest: row.copy() for digest, row in fresh.items() if digest not in self._rows}
            self._rows = dict(self._least(self._rows | copies))
        self._added += len(rows)
        if self._added >= self._next:
            try:
                self.check(np.stack([*self._rows.values()]))
            except GuaranteeError:
                self._rows, self._added = before
                raise
            self._next = 4 * self._added
            self._compared = self._added
        self._names.update(map(hash, new))

    def compare_epoch(self) -> None:
        """Compare once more at the end of an epoch, if records were added since the last comparison.

        Raises:
            GuaranteeError: As :meth:`check`. The records have been released by then.
        """
        if self._added > self._compared:
            self._compared = self._added
            self.check(np.stack([*self._rows.values()]))

    def check(self, rows: Num[np.ndarray, "n d"]) -> None:
        """Compare different records with the calibration: warn of 5 % more, refuse what is certainly 25 % more.

        Raises:
            GuaranteeError: If their own moments give more than a quarter above what was promised, beyond
                chance, and more than was accepted.
        """
        self._capacity = capacity = self._capacity_of(rows)
        if capacity.exceeds(REFUSED, self._accepted):
            raise GuaranteeError(capacity.sentence())
        if capacity.seems_to_exceed(self._accepted) and not self._warned:
            self._warned = True
            warnings.warn(capacity.sentence(), CapacityWarning, stacklevel=3)

    @property
    def capacity(self) -> OwnCapacity | None:
        """Capacity by the records added or last checked, whichever are more. None without any."""
        if not self._capacity or len(self._rows) > self._capacity.records:
            self._capacity = self._capacity_of(np.stack([*self._rows.values()])) if self._rows else None
        return self._capacity

    def _capacity_of(self, rows: Num[np.ndarray, "n d"]) -> OwnCapacity:
        """Compute the capacity by the moments of these records."""
        made = self._calibration
        return own_capacity(rows, made.channel, made.ratios, self._uses, calibrated=made.moments.count)


def check_accepted(accepted: Any) -> None:
    """Refuse accepted nats that are no finite number above 0.

    Raises:
        GuaranteeError: If they are none.
    """
    numeric = isinstance(accepted, int | float) and not isinstance(accepted, bool)
    if accepted is not None and not (numeric and 0 < accepted < math.inf):
        raise GuaranteeError(
            f"accept_capacity = {accepted!r}: give a finite number of nats above 0, or leave it out"
        )


def warn_of_records(records: Num[np.ndarray, "n ..."], calibration: Calibration) -> None:
    """Warn of copies, and if few records hold so much of the variance that the others do not fix it.

    The relative standard error of the total variance is compared with that of Gaussian records of the same
    spectrum. None of 300 Gaussian samples of 50 to 4,000 records warns, nor do tables of flowers, wines and
    patients. Student's t of 2.1 degrees warns in nine of ten samples of 400 records and in all of 4,000.

    Copies among the records make their covariance look better known than it is, so they cause a warning too
    where records of many values are equal.
    """
    different = len({row.tobytes() for row in records})
    if different < _DIFFERENT * len(records) and calibration.moments.dimension >= _FEWEST_VALUES:
        warnings.warn(
            f"only {different} of the {len(records)} calibration records differ, and their covariance counts "
            "as known from all: give each once, or records may reveal more nats than are stated",
            CapacityWarning,
            stacklevel=3,
        )
    squares = np.square(records.reshape(len(records), -1) - calibration.moments.mean).sum(axis=1)
    total = squares.mean()
    count = len(squares)
    error = squares.std() / (total * math.sqrt(count))
    if error <= _UNCERTAIN:
        return
    variances = calibration.moments.eigenvalues()
    gaussian = math.sqrt(2.0 * np.square(variances).sum() / count) / variances.sum()
    if error > _LONG * gaussian:
        warnings.warn(
            f"a few of the {count} calibration records hold much of their variance, which is uncertain by "
            f"{100 * error:.0f} %: records like them may reveal more nats than are stated, so limit or transform long "
            "tails, e.g. by logarithms, before the channel",
            CapacityWarning,
            stacklevel=3,
        )


def warn_of_samples(sampler: Any, records: int, planned: int) -> None:
    """Warn how many epochs a plan lasts with Poisson samples, which use some records more often than others.

    Uses of a record are binomial, and the most used of many records has more than the mean.

    Args:
        sampler: Sampler of batches. One of Poisson samples, e.g. Opacus', has a ``sample_rate``.
        records: Number of records.
        planned: Planned uses of a record.
    """
    rate = getattr(sampler, "sample_rate", None)
    if not isinstance(rate, float) or not 0 < rate < 1 or not len(sampler):
        return

    def enough(uses: int, epochs: int) -> bool:
        return 1.0 - float(bdtr(uses, epochs * len(sampler), rate)) ** records <= _SELDOM

    lasts = bisect_left(range(1, planned + 1), True, key=lambda epochs: not enough(planned, epochs))
    most = planned * len(sampler)
    needed = bisect_left(range(most), True, key=lambda uses: enough(uses, planned))
    warnings.warn(
        f"batches are Poisson samples of rate {rate:.3g}, which use some records more often than others: with a "
        f"probability of {1 - _SELDOM:.0%} a plan of {planned} uses lasts {lasts} epochs; {planned} epochs need "
        f"uses={needed}",
        CapacityWarning,
        stacklevel=3,
    )


def warn_of_owners(owners: Sequence[int] | Int[np.ndarray, " records"], plan: Any) -> None:
    """Warn before the first release if a plan is for fewer records of an owner than there are.

    Args:
        owners: Owner of each record.
        plan: Plan of uses.
    """
    records = int(np.unique(owners, return_counts=True)[1].max())
    if plan.most is None or not plan.adds or (fits := plan.uses_of_each(records)) >= plan.most:
        return
    each = "no use of each" if not fits else f"{fits} use{'s' * (fits != 1)} of each"
    warnings.warn(
        f"up to {records} records are of one owner, and their nats add up: {each} fit into the {plan.limit:.4g} nats "
        f"of a plan for {plan.most} of {plan.records}; plan for all of them by a target with records={records}",
        CapacityWarning,
        stacklevel=3,
    )


def unlike_units(rows: Num[np.ndarray, "n d"]) -> tuple[float, float] | None:
    """Find columns in very different units: noise of one variance covers some and hardly changes others.

    The largest standard deviation is compared with the lower quartile over columns that vary, so that a few
    pixels that are nearly always dark are no other unit.

    Args:
        rows: Records, a column for each value.

    Returns:
        The least and the largest standard deviation, None if columns are in like units.
    """
    deviations = rows.std(axis=0, dtype=np.float64)
    varying = deviations[deviations > 0]
    if not len(varying) or varying.max() <= _UNLIKE * np.quantile(varying, 0.25, method="lower"):
        return None
    return float(varying.min()), float(varying.max())


class NearCopies:
    """Find records that agree with others in twelve coarse numbers without being equal.

    The numbers are random combinations of values, whitened by the calibration's covariance, in cells of two
    grids, of which one may separate a copy from its original. Two independent Gaussian records agree with a
    probability of 10⁻¹⁸. Of large records 2,049 to 4,096 values are compared, evenly spread. Records of
    fewer than 16 values are not compared. A ledger keeps the cells of private records, so that they are compared
    in all of its runs.

    Args:
        moments: Mean and covariance of the calibration records.

    Attributes:
        mean: (values,) mean of the values that are compared.
        axes: (values, 12) combinations of these, in units of a cell. None if records are not compared.
    """

    def __init__(self, moments: Moments) -> None:
        self._part = slice(None, None, -(-moments.dimension // _MOST_VALUES))
        self.mean = moments.mean[self._part]
        self.axes: Float[np.ndarray, "values numbers"] | None = None
        self._public: dict[bytes, bytes] = {}
        self._noted: set[bytes] = set()
        self._name = b""
        if moments.dimension >= _FEWEST_VALUES:
            ridge = _RIDGE * moments.total_variance / moments.dimension
            draws = np.random.default_rng(0).normal(size=(len(self.mean), _NUMBERS))
            axes = moments.whitening(self._part, ridge, draws)
            # With the ridge each combination has the variance |draws|².
            variances = np.square(draws).sum(axis=0) - ridge * np.square(axes).sum(axis=0)
            self.axes = axes / np.sqrt(variances) / _CELL

    def name_cells(self) -> None:
        """Name cells by their grid, where those of several lie in one ledger and none is kept there."""
        parts = [np.ascontiguousarray(part).tobytes() for part in (self.mean, self.axes) if part is not None]
        self._name = blake2b(b"".join(parts), digest_size=16).digest()

    def add_public(self, rows: Num[np.ndarray, "n d"], names: Sequence[bytes]) -> None:
        """Add public records, whose digests are ``names``."""
        for name, cells in zip(names, self._cells(rows), strict=True):
            self._public |= {cell: name for cell in cells if cell not in self._public}

    def new_cells(self, rows: Num[np.ndarray, "n d"], names: Sequence[bytes]) -> list[tuple[bytes, ...]]:
        """Return the cells of private records, none of those that were noted. Warn if one is nearly a public one.

        Args:
            rows: Values.
            names: Digests, equal for equal records.
        """
        new = [place for place, name in enumerate(names) if name not in self._noted]
        listed: list[tuple[bytes, ...]] = [()] * len(names)
        if not new or self.axes is None:
            return listed
        for place, cells in zip(new, self._cells(rows[new]), strict=True):
            listed[place] = cells
            if any(self._public.get(cell, names[place]) != names[place] for cell in cells):
                self._public.clear()  # once is enough
                self.warn("a public")
        return listed

    def note(self, names: Sequence[bytes]) -> None:
        """Note that a ledger has the cells of some private records."""
        self._noted.update(names)

    def forget(self) -> None:
        """Forget which private records a ledger has the cells of, as for another ledger."""
        self._noted.clear()

    @staticmethod
    def warn(of: str) -> None:
        """Warn that a private record is nearly another one."""
        warnings.warn(
            f"a private record is nearly {of} one, but not equal to it: if one is a copy of the other, at another "
            "precision say, the two reveal up to twice what is stated; keep one of them",
            CapacityWarning,
            stacklevel=5,
        )

    def _cells(self, rows: Num[np.ndarray, "n d"]) -> Iterator[tuple[bytes, ...]]:
        """Yield the cells of each record, one in each grid."""
        if self.axes is None:
            yield from itertools.repeat((), len(rows))
            return
        numbers = (rows[:, self._part].astype(np.float64) - self.mean) @ self.axes
        grids = [np.floor(numbers + grid).astype(np.int64) for grid in (0.0, 0.5)]
        for cells in zip(*grids, strict=True):
            yield tuple(self._name + b"%d" % grid + cell.tobytes() for grid, cell in enumerate(cells))


class Progress:
    """Show the stages of one calibration on standard error.

    Args:
        records: Number of records.
        values: Of each.
        shown: Whether anything is shown. None for records of 500 values and more.
    """

    def __init__(self, records: int, values: int, shown: bool | None = None) -> None:
        self._added = values >= _LARGE if shown is None else shown
        self._what = f"leakbound: calibrating to {records} records of {values} values"
        self._began = time.monotonic()
        self._last = 0.0
        self._terminal = sys.stderr.isatty()

    def __call__(self, stage: str, done: float) -> None:
        """Show that a stage begins.

        Args:
            stage: Its name.
            done: Share of the work before it, in [0, 1], and 1 at the end.
        """
        now = time.monotonic()
        if not self._added:
            return
        seconds = f"{now - self._began:.0f} s"
        if self._terminal:
            bar = "#" * round(_WIDTH * done)
            end = "\n" if done >= 1.0 else ""
            sys.stderr.write(f"\r\x1b[K{self._what} [{bar:<{_WIDTH}}] {stage}, {seconds}{end}")
            sys.stderr.flush()
        elif not self._last or now - self._last >= _EVERY:
            self._last = now
            sys.stderr.write(f"{self._what}: {stage}, {done:.0%} done after {seconds}\n")
