"""Moments of records that pass a channel, compared with those of its calibration before they are released."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Num

from leakbound.channels.observed import REFUSED, OwnCapacity, own_capacity, sample_size
from leakbound.engine.records import Key, Layout, as_tensor, taken
from leakbound.engine.refusals import CapacityWarning, GuaranteeError

if TYPE_CHECKING:
    from leakbound.engine.targets import Calibration

_UNCERTAIN = 0.05  # relative standard error of the total variance, from which tails are compared
_LONG = 2.0  # times the error that Gaussian records of the same spectrum have
_READ = 256  # records of a dataset that are read before the first release
# Records at the first comparison, which is made again when they have quadrupled, and after an epoch.
_FIRST = 16


class OwnMoments:
    """Compute the capacity by the records' own moments, from a uniform sample that stays in memory.

    Others can see a stop, which reveals that the records' moments were too large.

    Args:
        calibration: The channel, with the moments that it was calibrated to.
        uses: Planned uses of a record with independent noise.
        accepted: Nats of all planned uses together that the user accepts. None for those of the calibration.

    Raises:
        GuaranteeError: If ``accepted`` is not positive.
    """

    def __init__(self, calibration: Calibration, uses: int, accepted: Any) -> None:
        numeric = isinstance(accepted, int | float) and not isinstance(accepted, bool)
        if accepted is not None and not (numeric and 0 < accepted < math.inf):
            raise GuaranteeError(
                f"accept_capacity = {accepted!r}: give a finite number of nats above 0, or leave it out"
            )
        self._calibration, self._uses, self._accepted = calibration, uses, accepted
        self._size = sample_size(calibration.channel.dimension)
        self.forget()

    def forget(self) -> None:
        """Forget all records, also those of another client."""
        self._rows: list[Num[np.ndarray, " d"]] = []
        self._shown, self._compared, self._warned = 0, 0, False
        self._next = _FIRST
        self._names: set[int] = set()
        self._random = np.random.default_rng()
        self._checked: OwnCapacity | None = None

    def read(self, dataset: Any, key: Key, layout: Layout) -> None:
        """Compare some records of a dataset with the calibration, before the first release.

        Raises:
            GuaranteeError: As :meth:`check`, or if one varies where no calibration record does. Records of
                another form are refused when they are released.
        """
        sample = self._random.permutation(len(dataset))[: min(_READ, self._size)]
        inputs = [as_tensor(taken(dataset[int(index)], key)) for index in sample]
        fitting = [record.flatten().numpy() for record in inputs if layout.fits(record[None])]
        if fitting:
            self._calibration.check_directions(np.stack(fitting))
            self.check(np.stack(fitting))

    def chosen(self, rows: Num[np.ndarray, "n d"]) -> Num[np.ndarray, "sample d"]:
        """Sample as many of these records as are compared."""
        few = len(rows) <= self._size
        return rows if few else rows[self._random.choice(len(rows), self._size, replace=False)]

    def show(self, rows: Num[np.ndarray, "n d"], names: Sequence[Hashable]) -> None:
        """Add records whose names were not shown before, and compare when their number has quadrupled.

        Raises:
            GuaranteeError: As :meth:`check`. The rows then count as not shown.
        """
        new = {name: row for row, name in enumerate(names) if hash(name) not in self._names}
        if not new:
            return
        rows = rows[list(new.values())]
        before = list(self._rows), self._shown
        places = self._random.integers(0, self._shown + 1 + np.arange(len(rows)))  # Vitter's algorithm R
        room = self._size - len(self._rows)
        self._rows += list(rows[:room].copy())
        for row in room + np.flatnonzero(places[room:] < self._size):
            self._rows[places[row]] = rows[row].copy()
        self._shown += len(rows)
        if self._shown >= self._next:
            try:
                self.check(np.stack(self._rows))
            except GuaranteeError:
                self._rows, self._shown = before
                raise
            self._next, self._compared = 4 * self._shown, self._shown
        self._names.update(map(hash, new))

    def conclude(self) -> None:
        """Compare once more at the end of an epoch, if records were shown since the last comparison.

        Raises:
            GuaranteeError: As :meth:`check`. The records have been released by then.
        """
        if self._shown > self._compared:
            self._compared = self._shown
            self.check(np.stack(self._rows))

    def check(self, rows: Num[np.ndarray, "n d"]) -> None:
        """Compare different records with the calibration: warn of 5 % more, refuse what is certainly 25 % more.

        Raises:
            GuaranteeError: If their own moments give more than a quarter above what was promised, beyond
                chance, and more than was accepted.
        """
        self._checked = capacity = self._capacity_of(rows)
        if capacity.exceeds(REFUSED, self._accepted):
            raise GuaranteeError(capacity.sentence())
        if capacity.seems_to_exceed(self._accepted) and not self._warned:
            self._warned = True
            warnings.warn(capacity.sentence(), CapacityWarning, stacklevel=3)

    @property
    def capacity(self) -> OwnCapacity | None:
        """Capacity by the records shown or last checked, whichever are more. None without any."""
        if not self._checked or len(self._rows) > self._checked.records:
            self._checked = self._capacity_of(np.stack(self._rows)) if self._rows else None
        return self._checked

    def _capacity_of(self, rows: Num[np.ndarray, "n d"]) -> OwnCapacity:
        """Compute the capacity by the moments of these records."""
        made = self._calibration
        return own_capacity(rows, made.channel, made.ratios, self._uses, calibrated=made.moments.count)


def warn_of_tails(records: Num[np.ndarray, "n ..."], calibration: Calibration) -> None:
    """Warn if a few calibration records hold so much of the variance that the others do not fix it.

    The relative standard error of the total variance is compared with that of Gaussian records of the same
    spectrum. None of 300 Gaussian samples of 50 to 4,000 records warns, nor do tables of flowers, wines and
    patients. Student's t of 2.1 degrees warns in nine of ten samples of 400 records and in all of 4,000.
    """
    squares = np.square(records.reshape(len(records), -1) - calibration.moments.mean).sum(axis=1)
    total, count = squares.mean(), len(squares)
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
