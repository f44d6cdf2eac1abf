"""Leakage over any schedule of uses and channels, by record, and the guarantee of an engine in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from leakbound.accounting.leakage import Mechanism, repeated
from leakbound.accounting.risk import naming_bound
from leakbound.accounting.statement import (
    IF_SECRET,
    INDEPENDENT,
    NO_BOUND,
    OTHER_VALUES,
    PUBLIC_ARE_OTHERS,
    SEEDED,
    Statement,
    state,
    upper_bound,
)
from leakbound.channels.channel import GaussianChannel, signal_to_noise
from leakbound.channels.composition import schedule_nats
from leakbound.channels.covariance import Moments
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.engine.calibrations import Calibration
from leakbound.engine.refusals import GuaranteeError
from leakbound.words import in_nats

_MOST = 2**53  # a count that float64 holds exactly
_AVERAGE = "on average over records like the calibration's"
_ROUNDING = 1e-9  # relative, of nats that are compared
_CANDIDATES = 1000
_VERSION = 3  # of the facts that a state holds
_ALIKE = 1e-6  # relative difference of facts of equal channels, calibrated again


@dataclass(frozen=True)
class Account:
    """Nats that a schedule of uses reveals about records: about the one that leaks most, and about all.

    Attributes:
        worst: Index of the record that leaks most.
        uses: Uses of that record.
        fresh_uses: Uses with independent noise. A frozen copy counts as one, however often it is used.
        printed: Σ n·κ over the steps, as published: loose for one record, and no bound for all. None if the
            number of steps is not known.
        linear: Σ k·κ, valid for one record, and loose.
        joint: ½ ln det(I + Σ_i k_i Σ_D Σ_ξi⁻¹), by added precisions: valid, and never above ``linear``.
        labels: Nats that labels reveal in addition, as they are or by randomized response. None if they are
            not counted.
        record: The smallest valid bound for the record, ``joint`` and ``labels``.
        average: The same on average over all records.
        dataset: Their sum, which bounds what is revealed about all records together.
        group: Most records of an owner, whose bounds are about all of them together. None if records have no
            owners, and are taken as independent of each other.
        uncovered: What of the release the bounds do not cover.
        secure: Whether no seed repeats the noise of any of these uses. Otherwise the numbers would be bounds if all
            of it were secret.

    Example:
        >>> from leakbound.channels import Natural, population_moments
        >>> moments = population_moments(np.random.default_rng(0).normal(size=(100, 4)))
        >>> channel = Natural.calibrate(Natural.decompose(moments), 2.0)
        >>> account = LeakageAccountant(moments, records=3).add(channel, uses=np.array([1, 5, 0])).account()
        >>> account.worst, account.uses, round(account.linear, 6)
        (1, 5, 10.0)
    """

    worst: int
    uses: int
    fresh_uses: int
    printed: float | None
    linear: float
    joint: float
    labels: float | None
    record: float
    average: float
    dataset: float
    group: int | None = None
    uncovered: tuple[str, ...] = ()
    secure: bool = True

    @property
    def owned(self) -> bool:
        """True if bounds are those of all records of an owner together."""
        return self.group is not None

    @property
    def counts_labels(self) -> bool:
        """True if all labels that were released are counted, and no other values were released as they are."""
        return self.labels is not None and OTHER_VALUES not in self.uncovered

    def metric(self, name: str, separator: str = "_") -> str:
        """Return a name of ``record`` for a chart or a message, with all that the number leaves out.

        Args:
            name: Its name where nothing is left out and no seed repeats the noise.
            separator: What is between words.
        """
        words = [] if self.counts_labels else ["plus_labels_not_counted"]
        words += [] if self.secure else [IF_SECRET]
        return separator.join([name, *(word.replace("_", separator) for word in words)])

    def statement(self, *, secure: bool = True) -> Statement:
        """State what values computed from the noisy records reveal.

        Args:
            secure: Whether no seed repeats the noise, also if the account knows of none.
        """
        return state(
            "values computed from the noisy records",
            secure=secure and self.secure,
            labels="uncounted" if self.labels is None else self.labels,
            added=self.record - (self.labels or 0.0),
            unit="owner" if self.owned else "record",
            group=self.group or 1,
            uncovered=self.uncovered,
        )

    def __str__(self) -> str:
        """List the numbers, one a line."""
        printed = "unknown, give steps" if self.printed is None else in_nats(upper_bound(self.printed, 6))
        lines = {
            "most used record": f"{self.worst}: {self.uses} uses, {self.fresh_uses} with independent noise",
            "as published, n steps": f"{printed} (loose, and no bound for all records)",
            "uses added up": in_nats(upper_bound(self.linear, 6)),
            "precisions added up": in_nats(upper_bound(self.joint, 6)),
            "labels": "not counted, give classes"
            if self.labels is None
            else in_nats(upper_bound(self.labels, 6)),
            (
                "bound without labels" if self.labels is None else "smallest valid bound"
            ): f"{in_nats(upper_bound(self.record, 6))} of this record, on average over its distribution"
            + (", plus labels, not counted" if self.labels is None else "")
            + f"; {INDEPENDENT['owner' if self.owned else 'record']}"
            + (f"; not covered: {', '.join(self.uncovered)}" if self.uncovered else ""),
            "average record": in_nats(upper_bound(self.average, 6)),
            "all records together": in_nats(upper_bound(self.dataset, 6)),
        }
        seeded = (
            [] if self.secure else [f"{NO_BOUND}: {SEEDED}; the numbers below would hold if it were secret"]
        )
        return "\n".join([*seeded, *(f"{name:<22}{value}" for name, value in lines.items())])


@dataclass
class _Part:
    """Uses of records through one channel.

    Attributes:
        channel: The channel.
        mechanism: Its ratios.
        uses: Uses of each record, or of all records of its owner.
        fresh_uses: Those with independent noise.
        later: Uses with independent noise of each record of its owner that were added to ``fresh_uses``, 0 where
            a record is an owner's only one.
        steps: Steps of training.
    """

    channel: GaussianChannel
    mechanism: Mechanism
    uses: Int[np.ndarray, " records"]
    fresh_uses: Int[np.ndarray, " records"]
    later: Int[np.ndarray, " records"]
    steps: int | None


class LeakageAccountant:
    """Add up what uses of channels reveal about each record, for any order, channels and noise.

    Bounds hold for every distribution of the records with the covariance of ``moments``, and for whoever sees
    all that was computed from the noisy records. Noise of different uses is independent, so their precisions
    add. A frozen copy is one use in all.

    Args:
        moments: Mean and covariance of the records' distribution, which the channels were calibrated to.
        records: Number of records, >= 1.
        distinct: (records,) places that are records of their own, over which average and sum are taken. False
            where another place holds the same record. Default: all.
        group: Most records of an owner, by all of which together bounds are. What is added is that of each record
            of an owner, so it counts ``group`` times, and of different numbers the largest counts for all owners.
        uncovered: What of the release the bounds do not cover.
        secure: Whether no seed repeats the noise.

    Raises:
        GuaranteeError: If there is no record.

    Example:
        >>> from leakbound.channels import Natural, population_moments
        >>> moments = population_moments(np.random.default_rng(0).normal(size=(100, 4)))
        >>> channel = Natural.calibrate(Natural.decompose(moments), 2.0)
        >>> frozen = LeakageAccountant(moments).add(channel, uses=50, noise="frozen")
        >>> round(frozen.account().record, 6)
        2.0
    """

    def __init__(
        self,
        moments: Moments,
        records: int = 1,
        *,
        distinct: Bool[np.ndarray, " records"] | None = None,
        group: int | None = None,
        uncovered: tuple[str, ...] = (),
        secure: bool = True,
    ) -> None:
        if records < 1:
            raise GuaranteeError(f"records = {records}: give the number of records, at least 1")
        self.moments = moments
        self.records = records
        self._group = group
        self._uncovered = uncovered
        self._secure = secure
        self._distinct = np.ones(records, bool) if distinct is None else distinct
        self._parts: list[_Part] = []
        self._labels: Float[np.ndarray, " records"] | None = None
        self._added = np.zeros(records)
        self._each = np.full(records, group or 1)

    def of_owners(self, groups: Int[np.ndarray, " records"], group: int | None) -> LeakageAccountant:
        """Take what was added so far as that of all records of an owner, and what follows as that of each of them.

        Args:
            groups: Number of records of each record's owner, 0 without one.
            group: Most records of an owner, None if not all records have one.
        """
        self._group = group
        self._each = np.maximum(groups, 1)
        return self

    def _of_each(self, values: Any) -> np.ndarray:
        """Return values of each record, for records with others of their owner the largest that any of these has.

        Which of them are of one owner is not known here.
        """
        each = np.broadcast_to(np.asarray(values), (self.records,))
        several = self._each > 1
        return np.where(several, each[several].max(), each) if several.any() else each

    def add(
        self,
        channel: GaussianChannel,
        uses: Any,
        *,
        noise: str = "fresh",
        fresh_uses: Int[np.ndarray, " records"] | None = None,
        steps: int | None = None,
        ratios: Float[np.ndarray, " d"] | None = None,
    ) -> LeakageAccountant:
        """Add uses of a channel. Uses of the same channel add up.

        Args:
            channel: A calibrated channel.
            uses: Whole number >= 0 for every record, or array (records,) of one for each.
            noise: ``fresh`` noise at each use, or ``frozen``: one copy of each record, drawn again for each
                call.
            fresh_uses: Uses of each record with independent noise, if they are known. Default: those that
                ``noise`` gives.
            steps: Steps of training, >= 0, for the published total alone.
            ratios: Variance ratios of one use, if they are known. Default: computed from the moments.

        Returns:
            This accountant.

        Raises:
            GuaranteeError: If counts are negative, 2⁵³ or more in all, or not one for each record, or the
                channel has another dimension.
        """
        counts = self._of_each(self._whole_numbers(uses, steps))
        check_noise(noise)
        if channel.dimension != self.moments.dimension:
            raise GuaranteeError(
                f"the channel has {channel.dimension} axes, the records {self.moments.dimension} values: account for "
                "each kind of records with an accountant of its own"
            )
        if fresh_uses is None:
            fresh_uses = counts if noise == "fresh" else np.minimum(counts, 1)
        # Precisions add for a record. The uses of an owner's records so far are not those of one record.
        several = self._each > 1
        later = np.where(several, self._of_each(fresh_uses), 0)
        counts = counts * self._each
        fresh_uses = np.where(several, 0, fresh_uses)
        for part in self._parts:
            if part.channel is channel:
                part.uses = part.uses + counts
                part.fresh_uses = part.fresh_uses + fresh_uses
                part.later = part.later + later
                part.steps = None if steps is None or part.steps is None else part.steps + steps
                return self
        if ratios is None:
            ratios = signal_to_noise(channel, self.moments)
        self._parts.append(_Part(channel, Mechanism(channel.shape, ratios), counts, fresh_uses, later, steps))
        return self

    def _whole_numbers(self, uses: Any, steps: int | None) -> Int[np.ndarray, " records"]:
        """Return the uses of each record that :meth:`add` is given.

        Raises:
            GuaranteeError: If they are no counts, not one for each record, or too many with all that was added.
        """
        numbers = np.broadcast_to(np.asarray(uses), np.shape(uses) or (self.records,))
        numeric = numbers.shape == (self.records,) and numbers.dtype.kind in "iuf"
        if not numeric or np.any(numbers != np.floor(numbers)) or np.any(numbers < 0):
            raise GuaranteeError(
                f"uses of shape {np.shape(uses)}: give one whole number >= 0, or one for each of {self.records} records"
            )
        used = sum((part.uses.astype(np.float64) for part in self._parts), numbers.astype(np.float64))
        if float(used.max()) >= _MOST or (steps is not None and not 0 <= steps < _MOST):
            raise GuaranteeError(
                f"uses up to {float(used.max()):g} and steps = {steps}: give numbers from 0 to below 2**53 in all"
            )
        return numbers.astype(np.int64)

    def add_labels(self, classes: int | None = None, *, nats: Any = None) -> LeakageAccountant:
        """Count labels: ln(classes) of each record if they are released as they are, or other nats. Calls add up.

        Args:
            classes: Number of labels.
            nats: Their entropy, or what randomized responses to a label reveal together, e.g.
                ``response.capacity`` if it is drawn once and ``response.information(epochs)`` if in each
                epoch. A number for each record that was used, or array (records,).

        Raises:
            GuaranteeError: Unless one of the two is given, in range.
        """
        if (classes is None) == (nats is None):
            raise GuaranteeError("labels: give the number of classes, or nats, their entropy")
        if classes is not None and classes < 1:
            raise GuaranteeError(f"classes = {classes}: give the number of labels, at least 1")
        label_nats = np.asarray(math.log(classes) if classes is not None else nats, np.float64)
        finite = np.all((label_nats >= 0) & np.isfinite(label_nats))
        if label_nats.shape not in ((), (self.records,)) or not finite:
            raise GuaranteeError(f"nats = {nats}: give the entropy of a label, finite and at least 0")
        label_nats = self._of_each(label_nats) * self._each
        self._labels = label_nats + (np.zeros(self.records) if self._labels is None else self._labels)
        return self

    def add_nats(self, nats: Float[np.ndarray, " records"]) -> LeakageAccountant:
        """Add nats >= 0 that other uses of each record reveal, whose channels are not at hand."""
        self._added = self._added + self._of_each(nats) * self._each
        return self

    def per_record(self) -> Float[np.ndarray, " records"]:
        """Return the smallest valid bound for each record, in nats, with labels for those that were used."""
        return self._joint() + self._label_nats()

    def _label_nats(self) -> Float[np.ndarray, " records"]:
        """Return the nats of labels of each record, 0 for those that were not used."""
        used = sum((part.uses for part in self._parts), np.zeros(self.records, np.int64)) > 0
        used |= self._added > 0
        return np.where(used, 0.0 if self._labels is None else self._labels, 0.0)

    def account(self) -> Account:
        """Return all numbers, for the record that leaks most and for all together."""
        joint = self._joint()
        bounds = self.per_record()
        worst = int(bounds.argmax())
        uses = sum(int(part.uses[worst]) for part in self._parts)
        printed = [
            repeated(part.steps, part.mechanism.nats(1)) for part in self._parts if part.steps is not None
        ]
        fresh_uses = [
            int(part.fresh_uses[worst] + self._each[worst] * part.later[worst]) for part in self._parts
        ]
        linear = [
            repeated(count, part.mechanism.nats(1))
            for count, part in zip(fresh_uses, self._parts, strict=True)
        ]
        return Account(
            worst=worst,
            uses=uses,
            fresh_uses=sum(fresh_uses),
            printed=sum(printed, 0.0) if len(printed) == len(self._parts) else None,
            linear=sum(linear, float(self._added[worst])),
            joint=float(joint[worst]),
            labels=None if self._labels is None else float(self._label_nats()[worst]),
            record=float(bounds[worst]),
            average=float(bounds[self._distinct].mean()),
            dataset=float(bounds[self._distinct].sum()),
            group=self._group,
            uncovered=self._uncovered,
            secure=self._secure,
        )

    def _joint(self) -> Float[np.ndarray, " records"]:
        """Bound the nats of the pixels: those of a record, or of all records of an owner, which are added up."""
        if not self._parts:
            return self._added
        together = self._composed([part.fresh_uses for part in self._parts])
        later = self._composed([part.later for part in self._parts]) if np.any(self._each > 1) else 0.0
        return together + self._each * later + self._added

    def _composed(self, uses: list[Int[np.ndarray, " records"]]) -> Float[np.ndarray, " records"]:
        """Bound the nats of uses of each channel by one record, computed once for each schedule that occurs."""
        schedules = np.stack(uses, axis=1)
        kinds, kind_of = np.unique(schedules, axis=0, return_inverse=True)
        channels = [part.channel for part in self._parts]
        mechanisms = [part.mechanism for part in self._parts]
        nats = [schedule_nats(channels, mechanisms, kind.tolist(), self.moments) for kind in kinds]
        return np.array(nats)[kind_of.ravel()]


def check_noise(noise: str) -> None:
    """Refuse, with a ``GuaranteeError``, noise that is neither ``fresh`` nor ``frozen``."""
    if noise not in ("fresh", "frozen"):
        raise GuaranteeError(
            f"noise = {noise!r}: give 'fresh', drawn at each use, or 'frozen', once for each record"
        )


def facts_of(calibration: Calibration, response: RandomizedResponse | None, **facts: Any) -> dict[str, Any]:
    """List the facts that a state and an engine must share: of channel, response of labels, and others."""
    channel = {"version": _VERSION, "shape": calibration.channel.shape}
    channel |= {"nats": float(calibration.information(1)), "power": calibration.channel.noise_power}
    return {**channel, **facts} | ({} if response is None else {"labels": asdict(response)})


def alike(facts: Any, others: Mapping[str, Any]) -> bool:
    """Return whether two engines have the same facts, up to the rounding of calibrations."""
    if not isinstance(facts, Mapping) or facts.keys() != others.keys():
        return False
    pairs = [(facts[name], other) for name, other in others.items()]
    return all(
        math.isclose(fact, other, rel_tol=_ALIKE)
        if isinstance(fact, float) and isinstance(other, float)
        else fact == other
        for fact, other in pairs
    )


def guarantee(engine: Any) -> str:
    """Describe what a :class:`leakbound.ChannelEngine` guarantees and assumes, a fact in each line."""
    assumed = [f"  - {assumption}" for assumption in assumptions(engine)]
    return "\n".join([*_guaranteed(engine), "", "Assumed, and not checked in full:", *assumed])


def _guaranteed(engine: Any) -> Iterator[str]:
    """List the facts that hold."""
    calibration = engine.calibration
    target = engine.target
    frozen = engine.noise == "frozen"
    uses = 1 if frozen or target.uses is None else target.uses
    std = np.sqrt(calibration.channel.noise_power / calibration.channel.dimension)
    one_use = engine.nats(1)
    together = engine.nats(uses)
    account = engine.leakage()
    secure = account.secure  # also of what else its ledger counts
    yield (
        f"{target} by {calibration.channel.shape} noise, {engine.noise}, {'secure' if engine.secure else 'seeded'}"
    )
    layout = engine.layout
    yield f"inputs of shape {layout.shape}, values from {layout.low:g} to {layout.high:g}"
    yield f"noise of standard deviation {std:.4g} per value (root mean square), in the units of the data"

    def planned_line(of: str, nats: float, records: int = 1) -> str:
        """State what planned uses reveal together with the labels that are counted."""
        labels = engine.labels.nats
        said = state(
            f"the noisy values of {of}",
            secure=secure,
            labels="uncounted" if account.labels is None else records * (labels or 0.0),
            added=nats,
            unit="record" if records == 1 else "owner",
            group=records,
            uncovered=account.uncovered,
        )
        return said.sentence if secure else f"{said.release}: {said.short}"

    yield planned_line("one use", one_use)
    if frozen:
        planned = "all uses of the one noisy copy"
    elif target.uses is None:
        planned = "one use (their number is not limited: see engine.leakage())"
    else:
        planned = f"{uses} uses"
        yield planned_line(f"{uses} use{'s together' * (uses > 1)}", together)
    if target.records > 1:
        yield planned_line("these uses of each record of an owner", target.records * together, target.records)
    if account.uses or account.record:
        yield f"so far: {account.statement().sentence}"
    if (revealed := account.joint) > target.records * together * (1.0 + _ROUNDING):
        amount = in_nats(upper_bound(revealed, 6))
        yield f"by now {amount} of a record are revealed, more than the other lines are about"
    if together > (calibrated := calibration.information(uses)) * (1.0 + _ROUNDING):
        yield f"these are the nats that accept_capacity accepts; calibrated were {calibrated:.6g}"
    if (private := engine.own_capacity) is not None and private.records > 1:
        yield (
            f"{private.rounded:g} nats by the moments of the private records ({private.records} different ones were "
            "compared, each once): a statistic of these, so keep it to yourself"
        )
    error = calibration.linear_error(uses)
    blind = calibration.linear_error(0)
    yield f"after {planned}, {_AVERAGE}{'' if secure else ', if the noise were secret'}:"
    yield (
        f"  without the label, the best linear estimate errs by {error:.4g} squared per value; guessing the mean errs "
        f"by {blind:.4g}"
    )
    likely = f"  one of {_CANDIDATES} equally likely records of"
    success = naming_bound(target.records * together, _CANDIDATES)
    yield f"{likely} one label is identified with a probability of at most {upper_bound(success)}"
    if account.labels is not None and (label := engine.labels.nats) is not None:
        labels = max(
            target.records * label, account.labels
        )  # other runs of the ledger may have released more
        success = naming_bound(target.records * together + labels, _CANDIDATES)
        yield f"{likely} all labels, which are released, with at most {upper_bound(success)}"


def assumptions(engine: Any) -> Iterator[str]:
    """List the conditions that the facts rest on."""
    moments = engine.calibration.moments
    shrunk = f", shrunk by {moments.shrinkage:.2g}" if moments.shrinkage else ""
    yield (
        f"private records have the covariance of the {moments.count} calibration records{shrunk}; compared are some "
        "of them, on average; whatever their distribution, nats and identification then hold for every attacker"
    )
    yield (
        "no bound is about one unusual record: an input far from the calibration's, such as the negative of a picture, "
        "reveals more than the average"
    )
    yield (
        "the squared error is the least for Gaussian records alone; of images, an estimate that is not linear can err "
        "less"
    )
    if engine.public_records_repeat:
        yield f"the calibration records {PUBLIC_ARE_OTHERS}"
    if engine.calibrate_to_own:
        yield "the channel is a statistic of the records that it protects: what it reveals of them is not counted"
    account = engine.leakage()
    if account.owned:
        yield "owners are named rightly: nats of all records of an owner are added up, whatever these have in common"
    else:
        yield (
            "a record is its values: equal ones at several indices are one record, and a cropped, scaled or augmented "
            "version of it counts as another one: protect(..., owner=...) counts all records of an owner together"
        )
    yield "all that is released is computed from what the protected loader gave out"
    yield "nothing random acts before the channel; a few records were read again, and each later use is compared"
    if engine.ledger is None:
        yield (
            "uses in other runs, processes and engines are not known here and add up to these: give all of them one "
            "ledger=PATH, and save state_dict() with each checkpoint"
        )
    else:
        yield (
            f"{engine.ledger} counts uses of these records {engine.counts()}, and none before: nobody brings back an "
            "older one, or uses a copy next to it, which counts apart"
        )
    yield _label_assumption(engine.labels)
    if uncounted := sorted(engine.labels.uncounted, key=str):
        yield f"released without noise and not counted, as allowed: {', '.join(map(repr, uncounted))}"
    if not engine.secure:
        yield "NOISE IS SEEDED: whoever knows or tries the seed subtracts it; leave seed out to protect real records"
    elif not account.secure:
        yield (
            f"{engine.ledger or 'the ledger'} also counts uses of these records with NOISE FROM A SEED, which whoever "
            "knows or tries it subtracts: no noise that is added later hides them, so that no bound holds"
        )


def _label_assumption(labels: Any) -> str:
    """State the condition on which labels reveal no more than is counted."""
    if labels.classes is None:
        return "labels are not counted: give classes, and ln(classes) nats are added for a label"
    if (response := labels.response) is None:
        return f"labels are released as they are: {upper_bound(math.log(labels.classes))} nats on top for a label"
    return (
        f"a label passes randomized response, which keeps it with a probability of {response.keep:.4g} "
        f"(ε = {upper_bound(response.epsilon)}): {in_nats(upper_bound(response.capacity))} on top for a label. It is "
        "drawn once for each record under the key of a ledger or state; another key or response draws again and adds "
        "its nats. The order of batches does not depend on labels"
    )
