"""Privacy events, and the leakage of all uses together in nats, for runs, engines and whole datasets.

A mechanism is a channel by the variance ratios of one use (:func:`leakbound.channels.signal_to_noise`). Uses
with independent noise add precisions where their axes are known, and nats where they are not. The bounds cover
the inputs. A channel does not change labels, which may reveal up to ln(classes) nats per record in addition.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, Num

from leakbound.accounting.gaussian import gaussian_capacity

DP_MECHANISMS = ("dpsgd", "dppsac", "channel_dpsgd", "dpmf")
"""Mechanisms that the accountants of DP were derived for."""
CORRELATED_MECHANISMS = ("dpmf",)
"""Those whose noise is correlated over steps. Their batches are cyclic, those of the others Poisson samples."""
CLIENT_MECHANISMS = ("pac",)
"""Mechanisms whose bound is about all records of a client together."""
_UNITS = ("unit", "rows", "records")
_ALIKE = 1e-6  # relative difference of the variance ratios of equal channels, calibrated again


@dataclass(frozen=True)
class PrivacyEvent:
    """Use of private records by a training, the only input of an accountant.

    Attributes:
        mechanism: ``none``, ``channel``, ``dpsgd``, ``dppsac``, ``channel_dpsgd``, ``dpmf``,
            ``parameter_noise``, ``gradient_compression``, ``large_batch``, ``compression``, ``pac``, or the name
            of an outside trainer.
        sampling: How batches were drawn: ``shuffled`` epochs, ``poisson``, or ``cyclic``, the same batches in
            each epoch.
        population: Number of records that could be drawn.
        batch_size: Records in a step. Under Poisson sampling, their expected number.
        steps: Number of optimisation steps.
        uses: Number of uses of the most used unit: of a record with all its copies, or of all records of an
            owner. For shuffled and cyclic batches it is counted. Poisson samples are secret, so under Poisson
            sampling it is the number of steps times ``rows``, an upper bound.
        shape: Channel shape, for a channel.
        capacity: κ in nats per use, for a channel, or nats of an upload about all records, for ``pac``.
        noise: ``fresh`` or ``frozen``, for a channel.
        noise_multiplier: Noise standard deviation over ``max_grad_norm``, for DP. Of correlated noise that of the
            white noise Z which it is made of.
        max_grad_norm: Clipping bound of a record's gradient, for DP.
        unit: Whose uses are counted: a ``record``, or all records of an ``owner``.
        rows: Most rows of the population that are of one unit.
        records: Most different records of one unit. It is 1 for a record, however many copies it has.
        bands: Bands of the matrix C of correlated noise C⁻¹Z, None for independent noise.
    """

    mechanism: str
    sampling: Literal["shuffled", "poisson", "cyclic"]
    population: int
    batch_size: int
    steps: int
    uses: int
    shape: str | None = None
    capacity: float | None = None
    noise: Literal["fresh", "frozen"] | None = None
    noise_multiplier: float | None = None
    max_grad_norm: float | None = None
    unit: Literal["record", "owner"] = "record"
    rows: int = 1
    records: int = 1
    bands: int | None = None

    @property
    def fresh_uses(self) -> int | float:
        """Uses of the most used unit with independent noise: one of each of its records if the noise is frozen.

        Of Poisson samples it is the expected number. They do not depend on the record, so what uploads reveal
        about it is at most the mean over samples of what they reveal to somebody who knows the sample, and
        nats are concave in the uses.
        """
        uses = self.steps * self.sample_rate * self.rows if self.sampling == "poisson" else self.uses
        return uses if self.noise == "fresh" else min(uses, self.records)

    @property
    def sample_rate(self) -> float:
        """Probability that a record takes part in a step."""
        return self.batch_size / self.population

    @property
    def bound(self) -> Literal["nats", "epsilon", "client"] | None:
        """Kind of bound that an accountant was derived for, or None without one, e.g. with clipping alone.

        ``client`` is one in nats about all records together, which says little of a single one.
        """
        if self.mechanism == "channel":
            return "nats"
        if self.mechanism in CLIENT_MECHANISMS:
            return "client"
        sampling = "cyclic" if self.mechanism in CORRELATED_MECHANISMS else "poisson"
        private = self.mechanism in DP_MECHANISMS and self.sampling == sampling and self.noise_multiplier
        return "epsilon" if private else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, of units and bands only those that say more than the default."""
        values = dataclasses.asdict(self)
        if self.bands is None:
            del values["bands"]
        if (self.unit, self.rows, self.records) == ("record", 1, 1):
            return {name: value for name, value in values.items() if name not in _UNITS}
        return values


@dataclass(frozen=True, eq=False)
class Mechanism:
    """One way in which records are released.

    Attributes:
        name: Shape of the channel, followed by what repeats its noise, if anything does.
        ratios: (d,) variance ratios of one use, in [0, ∞].
        planned: Planned uses with independent noise.
        accepted: Nats of all planned uses that the owner accepted in place of the calibrated ones. None: those.
        axes: Name of the covariance along whose principal directions the ratios lie, in descending order of its
            variances. Empty if the axes are not known.
        precisions: (d,) precision of the noise of one use at each value, where the axes of the noise are the
            values and not the principal directions of the covariance of that name, else None.
    """

    name: str
    ratios: Float[np.ndarray, " d"]
    planned: int = 1
    accepted: float | None = None
    axes: str = ""
    precisions: Float[np.ndarray, " d"] | None = None

    def same(self, other: Mechanism) -> bool:
        """Return whether another mechanism is this one, up to the rounding of calibrations."""
        planned = self.accepted is None or self.planned == other.planned
        along = self.precisions is None or self.axes == other.axes  # equal ratios may be along other values
        return (
            (self.name, self.accepted) == (other.name, other.accepted)
            and planned
            and along
            and self.ratios.shape == other.ratios.shape
            and np.allclose(self.ratios, other.ratios, rtol=_ALIKE, atol=0)
        )

    def nats(self, uses: float | int) -> float:
        """Bound the nats of a number of uses with independent noise, on average over records.

        Nats are concave in the uses, so that fewer uses than planned give at most what was accepted, and more
        at most that many times as much.
        """
        joint = joint_information(self.ratios, uses)
        if self.accepted is None or not uses:
            return joint
        return max(joint, self.accepted * max(1.0, uses / self.planned))

    def all_nats(self, uses: Num[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
        """Compute :meth:`nats` of each number of uses."""
        kinds, kind_of = np.unique(uses, return_inverse=True)
        return np.array([self.nats(float(kind)) for kind in kinds])[kind_of.ravel()]

    def worth(self, other: Mechanism) -> float | None:
        """Return how many uses of this mechanism one use of another is, None if their axes may differ.

        Precisions of noise add along common axes, which channels of one shape with proportional ratios have.
        """
        shapes = {(mechanism.name.split(",")[0], mechanism.ratios.shape) for mechanism in (self, other)}
        if len(shapes) > 1 or self.accepted is not None or other.accepted is not None:
            return None
        seen = (self.ratios > 0) | (other.ratios > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = other.ratios[seen] / self.ratios[seen]
        if not len(shares) or not np.isfinite(shares).all() or np.ptp(shares) > _ALIKE * shares.max():
            return None
        return float(shares.max())


@dataclass(frozen=True)
class Exposure:
    """Uses and nats of some records, as one mechanism sees them.

    Attributes:
        fresh_uses: (records,) uses of this mechanism with independent noise.
        parallel: (records,) uses of this mechanism that uses of other mechanisms along the same axes are worth.
        others: (records,) nats that uses along other axes have revealed, and other records of the owner.
        labels: (records,) nats that labels have revealed.
        siblings: (records,) nats among ``others`` that are those of other records of the owner.
    """

    fresh_uses: Int[np.ndarray, " records"]
    parallel: Float[np.ndarray, " records"]
    others: Float[np.ndarray, " records"]
    labels: Float[np.ndarray, " records"]
    siblings: Float[np.ndarray, " records"]

    @classmethod
    def nothing(cls, count: int) -> Exposure:
        """Return the zeros of records that were never used."""
        return cls(np.zeros(count, np.int64), *(np.zeros(count) for _ in range(4)))

    def after(self, counts: Int[np.ndarray, " records"] | int) -> Exposure:
        """Return the exposure after further uses with independent noise."""
        return replace(self, fresh_uses=self.fresh_uses + counts)

    def nats(self, mechanism: Mechanism) -> Float[np.ndarray, " records"]:
        """Bound the nats of the inputs, on average over records, as the mechanism sees them."""
        return mechanism.all_nats(self.fresh_uses + self.parallel) + self.others


Schedule = Sequence[tuple[Mechanism, float | int]]
"""Mechanisms with the uses of each with independent noise, of one record, or of all records of one owner."""


def seen_by(
    mechanism: Mechanism, uses: Schedule, determinant: Callable[[Schedule], float | None] | None = None
) -> tuple[float | int, float, float]:
    """Split uses of a record into those of one mechanism, those worth uses of it, and the other nats.

    Precisions add where mechanisms name one covariance, and nats elsewhere. The other nats are what is revealed
    beyond the uses of the mechanism, so that all three give the nats of all uses together.

    Args:
        mechanism: The one that sees them.
        uses: Uses of the record.
        determinant: Function from uses of mechanisms of one covariance, of which some have the values as axes,
            to the nats of their added precisions, or None where that covariance is not at hand.
    """
    fresh_uses: float | int = 0
    heads = [mechanism]  # the first along each set of axes
    totals: list[float] = [0.0]  # uses of each that all along its axes are worth
    for other, count in uses:
        worths = [head.worth(other) for head in heads]
        place = next((place for place, worth in enumerate(worths) if worth is not None), None)
        if other is mechanism:
            fresh_uses += count
        elif place is None:
            heads.append(other)
            totals.append(count)
        else:
            totals[place] += (worths[place] or 0.0) * count
    first_total = fresh_uses + totals[0]
    # What those of one covariance reveal together, and what each of the others does.
    groups: dict[Any, list[tuple[Mechanism, float | int]]] = {}
    for place, (head, total) in enumerate(zip(heads, [first_total, *totals[1:]], strict=True)):
        if total:
            groups.setdefault(head.axes if head.axes and head.accepted is None else place, []).append(
                (head, total)
            )
    other_nats = 0.0
    for group in groups.values():
        nats = _joined(group, determinant)
        other_nats += max(0.0, nats - mechanism.nats(first_total)) if group[0][0] is mechanism else nats
    return fresh_uses, totals[0], other_nats


def _joined(uses: Schedule, determinant: Callable[[Schedule], float | None] | None) -> float:
    """Bound the nats of mechanisms of one covariance together."""
    if len(uses) == 1:
        return uses[0][0].nats(uses[0][1])
    principal = [(mechanism, count) for mechanism, count in uses if mechanism.precisions is None]
    joint = None
    if len(principal) < len(uses) and determinant is not None:
        joint = determinant(uses)
    if joint is None:
        others = [mechanism.nats(count) for mechanism, count in uses if mechanism.precisions is not None]
        ratios = sum((count * mechanism.ratios for mechanism, count in principal), np.zeros(1))
        joint = joint_information(ratios, 1) + sum(others, 0.0)
    return min(joint, sum((mechanism.nats(count) for mechanism, count in uses), 0.0))


def composed_nats(uses: Schedule, determinant: Callable[[Schedule], float] | None = None) -> float:
    """Bound the nats that uses of several mechanisms reveal together about one record.

    This is the only rule of composition: the determinant of all precisions where the axes of all mechanisms
    are known, and otherwise precisions added up along common axes, and nats along others.

    Args:
        uses: Mechanisms with the uses of each with independent noise, >= 0.
        determinant: Function from the uses with a count above 0 to ½ ln det(I + Σ_i k_i Σ^½ P_i Σ^½), e.g.
            :func:`leakbound.channels.composition.composed_capacity`. None where axes are not known.

    Returns:
        Nats. With a determinant they are never above the sum of the nats of each mechanism alone.

    Example:
        >>> first, second = Mechanism("natural", np.array([3.0, 0.0])), Mechanism("white", np.array([0.0, 3.0]))
        >>> round(composed_nats([(first, 5), (second, 1)]), 4)  # ½ ln 16 + ½ ln 4
        2.0794
    """
    seen = tuple((mechanism, count) for mechanism, count in uses if count)
    if not seen:
        return 0.0
    first = seen[0][0]
    fresh_uses, parallel, others = seen_by(first, seen)
    added = first.nats(fresh_uses + parallel) + others
    if determinant is None or len(seen) == 1 or any(mechanism.accepted is not None for mechanism, _ in seen):
        return added
    return min(added, determinant(seen))


@dataclass(frozen=True)
class ChannelLeakage:
    """Leakage of one training, or of several through the same channel, in nats.

    Attributes:
        uses: k, uses of the most used unit with independent noise, expected ones of Poisson samples. It is
            1 per training and record of the unit if the noise is frozen.
        printed: n·κ for n steps, as published. It is loose for one record, and no bound for all records.
        linear: k·κ, a valid and loose bound for one record, which adds leakages instead of precisions.
        record: ½ Σ ln(1 + k μ_i/σ), the bound on what all releases together reveal about one record. About
            the m records of one owner it is m · ½ Σ ln(1 + (k/m) μ_i/σ), however they depend on each other.
        dataset: N times ``record``, the bound for all records.
    """

    uses: int | float
    printed: float
    linear: float
    record: float
    dataset: float


def composed_leakage(events: Sequence[PrivacyEvent], ratios: Float[np.ndarray, " d"]) -> ChannelLeakage:
    """Compute the leakage of trainings through one channel on the same records, e.g. of all replicas of a run.

    An attacker's view is computed from k noisy copies of the record. Their mean contains all that they
    reveal, and its noise has 1/k of the variance. Frozen noise gives one copy for each training, however often
    it is used. Noise of trainings is independent, so that R equal ones leak as much as one with R times the
    uses. The published total adds one capacity per step, although a step uses a whole batch and a record takes
    part in few steps.

    Args:
        events: One for each training. Its ``uses`` is the count of the most used record.
        ratios: (d,) variance ratios μ_i/σ of one use of the channel, in [0, ∞].

    Returns:
        Nats. For fresh noise, those about one record are between κ and k·κ. They are ∞ if a ratio is ∞ and
        the record was used.

    Raises:
        ValueError: If there are no events, one is not that of a channel, the ratios exceed the capacity that
            it states, or not all are of one channel and one set of records.

    Source:
        Tan et al. 2024, Section V, for the published total.
    """
    if not events:
        raise ValueError("there are no events, so there is nothing to account for")
    for event in events:
        _check(event, ratios)
    if len({replace(event, steps=0, uses=0, batch_size=0, rows=1, records=1) for event in events}) > 1:
        raise ValueError(
            "the events are of other channels or records; compose them by `channels.composed_capacity`"
        )
    uses, printed, linear = added_up(events)
    # Nats of records that depend on each other are at most those of each, and these are concave in the uses.
    records = max(event.records for event in events)
    record = records * Mechanism(events[0].shape or "", ratios).nats(uses / records if records > 1 else uses)
    return ChannelLeakage(uses, printed, linear, record, repeated(events[0].population, record))


def added_up(events: Sequence[PrivacyEvent]) -> tuple[int | float, float, float]:
    """Add up uses, n·κ as published, and k·κ of trainings through one channel."""
    uses = sum(event.fresh_uses for event in events)
    capacity = events[0].capacity or 0.0
    return uses, repeated(sum(event.steps for event in events), capacity), repeated(uses, capacity)


def _check(event: PrivacyEvent, ratios: Float[np.ndarray, " d"]) -> None:
    """Refuse an event that the accountant was not derived for, or whose channel has other ratios."""
    if event.mechanism not in ("channel", "channel_dpsgd"):
        raise ValueError(
            f"mechanism {event.mechanism!r}: this accountant composes data-space channels only; for DP-SGD and DP-PSAC "
            "use `accounting.dp`; for all others no guarantee was derived"
        )
    capacity = event.capacity
    counts = min(event.uses, event.steps, event.population)
    grouped = event.rows >= event.records >= 1 and (event.unit == "owner" or event.records == 1)
    complete = capacity is not None and capacity >= 0 and event.noise in ("fresh", "frozen")
    if capacity is None or not (complete and grouped) or counts < 0:
        raise ValueError(
            f"capacity {capacity}, noise {event.noise!r}, uses {event.uses}, steps {event.steps}, population "
            f"{event.population}, unit {event.unit!r} of {event.rows} rows and {event.records} records: the event of a "
            "channel states a capacity >= 0, noise 'fresh' or 'frozen', counts >= 0 and units of at least one row; "
            "the file is incomplete, train again"
        )
    reached = joint_information(ratios, 1)
    if reached > capacity * (1.0 + 1e-9):
        raise ValueError(
            f"the variance ratios have a capacity of {reached:.6g} nats, the event states {capacity:.6g}: they belong "
            "to another channel; compute them from the channel file of this run"
        )


def repeated(count: int | float, nats: float) -> float:
    """Multiply nats by a count. The result is 0 for a count of 0, also with ∞ nats."""
    return count * nats if count else 0.0


def joint_information(ratios: Float[np.ndarray, " d"], uses: float | int) -> float:
    """Compute the nats that k uses of one channel with independent noise reveal together, ½ Σ ln(1 + k μ/σ).

    Args:
        ratios: (d,) variance ratios of one use, in [0, ∞].
        uses: k >= 0, number of uses. Uses of a stronger or weaker channel along the same axes count by their
            share of its precision.

    Returns:
        Nats. They are 0 without uses, and otherwise ∞ if a ratio is ∞.

    Example:
        >>> round(joint_information(np.array([3.0, 0.0]), uses=5), 4)
        1.3863
    """
    if not uses:
        return 0.0
    if np.isposinf(ratios).any():
        return math.inf
    return gaussian_capacity(ratios * min(uses, 1.0), 1.0, max(float(uses), 1.0))
