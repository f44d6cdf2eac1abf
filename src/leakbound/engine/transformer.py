"""The channel as a transformer in scikit-learn's way."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _clone_parametrized
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from leakbound.accounting.leakage import Exposure
from leakbound.accounting.statement import EARLIER_SEEDS, OWN_NOISE, state
from leakbound.channels.shapes import shape_named
from leakbound.engine import saved
from leakbound.engine.calibrations import (
    OwnMoments,
    check_accepted,
    unlike_units,
    warn_of_owners,
    warn_of_records,
)
from leakbound.engine.frames import on_host, ordered_as, owners_of
from leakbound.engine.identity import Identity, LabelCount, PublicRecords, words
from leakbound.engine.ledger import Ledger, process
from leakbound.engine.records import Layout, as_tensor
from leakbound.engine.refusals import BudgetError, GuaranteeError
from leakbound.engine.release import CentredSampler, RecordNoise, name_of
from leakbound.engine.targets import Plan, as_target
from leakbound.randomness.sources import NoiseSource, SecureNoise

_ALLOWED_BY = "auxiliary=None"
_AROUND = "what a pipeline fits to clean rows, or passes around the channel"
_OF_PROCESS = (
    "_own",
    "_near",
    "_public",
    "_identity",
    "_number",
    "_ledger",
)  # that a pickle does not take along


class Nats(float):
    """Nats as a number, whose text is the sentence that says whom they are about and what they leave out.

    Attributes:
        sentence: That sentence.
    """

    sentence: str

    def __new__(cls, nats: float, sentence: str) -> Nats:
        """Make them."""
        made = super().__new__(cls, nats)
        made.sentence = sentence
        return made

    def __reduce__(self) -> Any:
        return Nats, (float(self), self.sentence)

    def __str__(self) -> str:
        return self.sentence

    __repr__ = __str__


class Channel(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Add calibrated noise to every record, so that the rest of a pipeline reveals a bounded number of nats of each.

    ``fit`` calibrates and ``transform`` releases: each call is one use of each row, also that of
    ``fit_transform``. Uses are counted by the owner of a row, or else by its values, over all fits, copies and
    clones of a channel in this process (folds and candidates of a search, a score after a fit), and refused
    beyond the plan of the target. In another process a fitted channel serves rows that it has not seen, and
    refuses others without a ledger. What is released is compared with the calibration: range, directions, and
    the capacity that the rows' own moments give. ``fit`` warns of natural noise for columns in very different
    units. A calibrated channel without this interface is a :class:`leakbound.channels.GaussianChannel`.

    A step after the channel sees ``y`` in the clear, so ``fit`` counts it, or says that it is not counted. What
    a pipeline passes around the channel (``remainder="passthrough"``), and what a step before it learns from
    clean rows (a scaler's means, a choice of columns), cannot be seen from here.

    Args:
        target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Identification``. A number is a capacity in
            nats per use.
        shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
        weights: (n_features,), relative noise variances, for the shape ``personalized``.
        auxiliary: (n, n_features), public or auxiliary records from the same distribution to calibrate to, none
            of them a private one. Columns of frames are found by name. Without them ``fit`` calibrates to the
            records that it is given. The channel is then a statistic of these, and neither its noise nor its
            attributes should be published. A pickle holds them sealed by the key of your account.
        random_state: By default noise is secure and fresh at each call. With a seed it is a function of the
            seed and of the record: equal records get equal noise, which makes experiments reproducible and
            gives no protection. Clones of a channel without one stay secure, as ensembles give a seed to all
            that they hold.
        value_range: Least and largest value that a record may have. By default the range of the calibration
            records, extended by half its width on both sides.
        accept_capacity: Nats of all planned uses together that the moments of the rows may give. Default: up
            to 25 % more than the calibration's, with a warning from 5 %.
        ledger: File of :meth:`leakbound.Ledger.create`, in which all processes count, or such a ledger.
        owner: Column that says whom a row is about, and is no feature, or level of the index. Default: the index
            of a frame, unless it numbers rows from 0, as that of another frame does, too. False: rows count by
            their values alone. ``fit`` and ``transform`` also take owners as an array.
        classes: Number of different labels in ``y``, which reveal ln(classes) nats of a row. Without it, and
            for numbers to be predicted, ``y`` is not counted.

    Attributes:
        calibration_: The channel, with the moments that it was calibrated to.
        layout_: Number and range of the values of a record.
        n_features_in_: Number of features.

    Example:
        >>> public = np.random.default_rng(0).normal(size=(500, 4))
        >>> private = np.random.default_rng(1).normal(size=(100, 4))
        >>> channel = Channel(3.0, auxiliary=public).fit(private)
        >>> channel.transform(private).shape
        (100, 4)
        >>> round(channel.leakage(), 6)
        3.0
    """

    def __init__(
        self,
        target: Any = 1.0,
        *,
        shape: Any = "natural",
        weights: Any = None,
        auxiliary: Any = None,
        random_state: Any = None,
        value_range: Any = None,
        accept_capacity: Any = None,
        ledger: Any = None,
        owner: Any = None,
        classes: Any = None,
    ) -> None:
        self.target = target
        self.shape = shape
        self.weights = weights
        self.auxiliary = auxiliary
        self.random_state = random_state
        self.value_range = value_range
        self.accept_capacity = accept_capacity
        self.ledger = ledger
        self.owner = owner
        self.classes = classes

    def __sklearn_tags__(self) -> Any:
        """Return the tags: float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_clone__(self) -> Channel:
        """Clone the channel. The clone's uses are counted with those of this channel."""
        other = _clone_parametrized(self)
        other._ledger = self._common_ledger()
        other._elsewhere = getattr(self, "_elsewhere", None)
        other._of_secure = self.random_state is None or getattr(self, "_of_secure", False)
        return other

    def fit(self, X: Any, y: Any = None, owner: Any = None) -> Channel:  # noqa: N803
        """Calibrate the channel to ``X``, or to the auxiliary records.

        Args:
            X: (n_samples, n_features), at least two rows.
            y: (n_samples,) or (n_samples, n_outputs), labels or numbers that a later step sees as they are.
            owner: (n_samples,), whom each row is about.

        Raises:
            GuaranteeError: If all records are equal, the auxiliary ones have other features or one of them is
                in X, ``y`` has more than ``classes`` labels, or no channel meets the target.
        """
        target = as_target(self.target)
        shape = shape_named(self.shape)
        labels = LabelCount(self.classes)
        if target.uses is not None and self.ledger is None:
            self._common_ledger().check_process()
        # The records to calibrate to: the auxiliary ones, which must not be those of X, or X itself.
        private, owners, _ = self._read(X, owner, fitted=False)
        auxiliary = self._auxiliary_records()
        records = private if auxiliary is None else auxiliary
        if self.value_range is not None and len(np.atleast_1d(self.value_range)) != 2:
            raise GuaranteeError(
                f"value_range = {self.value_range!r}: give the least and the largest value, or None"
            )
        check_accepted(self.accept_capacity)
        # The channel, and what its releases are compared with.
        self.layout_ = Layout.of(torch.from_numpy(records), self.value_range)
        weights = None if self.weights is None else np.asarray(self.weights)
        self.calibration_ = target.calibrate(records, shape, weights, target.uses or 1)
        self._seed = self._noise_seed()
        # Warnings about the calibration, and the ledger that counts from now on.
        warn_of_records(records, self.calibration_)
        if self.shape == "natural":
            _warn_of_units(records)
        self._join_ledger()
        ledger = self._common_ledger()
        needed = Identity.new(torch.from_numpy(records)).double
        self._double = needed if ledger.foreign else ledger.double(records.shape[1], needed)
        self._planned = target, self.accept_capacity, self.auxiliary is None
        self._plan = self._make_plan()
        self._served = False
        self.__dict__.pop("_own", None)
        self._prepare()
        # What is known of the rows from now on: that they were here, and what their labels reveal.
        contents = self._identity.contents(torch.from_numpy(private))
        self._public.refuse_many(contents)
        rows = words(self._identity.digests(contents))
        self._fitted = np.unique(rows)
        if pairs := self._identity.owner_pairs(rows, owners):
            warn_of_owners([owner for _, owner in pairs], self._plan)
        if y is not None:
            self._charge_labels(labels, contents, y, owners)
        return self

    def fit_transform(self, X: Any, y: Any = None, owner: Any = None) -> Any:  # noqa: N803
        """Calibrate as :meth:`fit` does, and add noise to each row, which is one use of it."""
        return self.fit(X, y, owner).transform(X, owner)

    def transform(self, X: Any, owner: Any = None) -> Float[np.ndarray, "n_samples n_features"]:  # noqa: N803
        """Add noise to each row, which is one use of it.

        Args:
            X: (n_samples, n_features), clean.
            owner: (n_samples,), whom each row is about.

        Returns:
            Noisy rows, float32 where X is and else float64, not clipped.

        Raises:
            BudgetError: If a row, or all rows of an owner, have no uses left.
            GuaranteeError: If a value is out of range, if a row varies in directions in which no calibration
                record does, and noise that follows these does not hide it, or if the moments of the rows give
                over 25 % more capacity than promised.
        """
        check_is_fitted(self)
        self._prepare()
        records, owners, back = self._read(X, owner, fitted=True)
        self.layout_.check(torch.from_numpy(records))
        self.calibration_.check_directions(records)
        contents = self._identity.contents(torch.from_numpy(records))
        self._public.refuse_one(contents)
        self._own.add(records, contents)
        self._charge(contents, owners, self._near.new_cells(records, contents))
        self._near.note(contents)
        source: NoiseSource = SecureNoise()
        if self._seed is not None:
            halves = np.frombuffer(b"".join(content[:16] for content in contents), np.uint64).reshape(-1, 2)
            copy = name_of(self._seed, self.calibration_.channel)
            source = RecordNoise(self._seed, copy, halves[:, 0], halves[:, 1])
        moments = self.calibration_.moments
        sampler = CentredSampler(self.calibration_.channel, moments.mean, on_grid=self._seed is None)
        return back(sampler.apply(torch.from_numpy(records), source).numpy())

    def leakage(self, uses: int | None = None) -> Nats:
        """Bound the nats that all uses of a row reveal, by default those so far of the row that leaks most.

        By default all rows of its owner count, where owners are named. Nats of a number of ``uses`` are those of
        one row. The bound is an average over records of the calibration's distribution. All fits and clones count, each
        use by the nats of the channel that it went through, and so do labels that are counted. Equal copies,
        with a seed, are one use. Channels that were made apart, such as two steps of a ``FeatureUnion``, do not
        know of each other without a common ``ledger``.

        Returns:
            A number, whose text says whom it is about and what it leaves out.

        Raises:
            GuaranteeError: If ``uses`` is negative.
        """
        check_is_fitted(self)
        if uses is not None and uses < 0:
            raise GuaranteeError(
                f"uses = {uses}: give the calls of transform that a record takes part in, at least 0"
            )
        self._prepare()
        mechanism = self._plan.mechanism
        ledger = self._common_ledger()
        of_label = LabelCount(self.classes).nats
        if uses is not None or ledger.foreign:
            nats = mechanism.nats(1 if uses is None else uses)
            return Nats(nats + (of_label or 0.0), self._sentence(nats, of_label, of_row=True))
        exposure = ledger.exposure(self._number, ledger.records())
        counted = of_label is not None and bool(np.isfinite(exposure.labels).all())
        values = np.append(exposure.nats(mechanism), mechanism.nats(1))
        labels = np.append(exposure.labels, of_label or 0.0) if counted else np.zeros(len(values))
        worst = int((values + labels).argmax())
        sentence = self._sentence(float(values[worst]), float(labels[worst]) if counted else None)
        return Nats(float(values[worst] + labels[worst]), sentence)

    @property
    def own_capacity_(self) -> float | None:
        """Nats of all planned uses by the moments of the rows that were released. Keep it private."""
        check_is_fitted(self)
        self._prepare()
        capacity = self._own.capacity
        return None if capacity is None else capacity.nats

    def __getstate__(self) -> dict[str, Any]:
        """Return plain values: the channel, the ledger's path or name, and digests of rows that were used here."""
        state = {name: value for name, value in super().__getstate__().items() if name not in _OF_PROCESS}
        if hasattr(self, "_ledger") or "_counted_in" in state:
            state["_counted_in"] = self._ledger_note()
        if hasattr(self, "calibration_"):
            facts = {"layout": asdict(self.layout_)}
            state["calibration_"] = saved.pack(self.calibration_, facts, sealed=self._planned[2])
            del state["_plan"], state["layout_"]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        super().__setstate__(dict(state))
        if "calibration_" in state:
            self.calibration_, facts = saved.unpack(state["calibration_"])
            self.layout_ = Layout(**facts["layout"] | {"shape": tuple(facts["layout"]["shape"])})
            self._plan = self._make_plan()
            self._served = True

    def _read(
        self,
        X: Any,  # noqa: N803
        owner: Any,
        *,
        fitted: bool,
    ) -> tuple[Float[np.ndarray, "n d"], list[Any] | None, Callable[[np.ndarray], Any]]:
        """Return rows as float64, the owner of each, and what gives noisy rows the type that came in."""
        rows, owners = owners_of(X, self.owner, owner)
        rows, back = on_host(rows)
        least = 2 if self.auxiliary is None and not fitted else 1
        options: dict[str, Any] = {"reset": False} if fitted else {"ensure_min_samples": least}
        shown = validate_data(self, rows, dtype=[np.float64, np.float32], **options)
        kind = shown.dtype
        records = np.array(shown, dtype=np.float64, order="C")
        return records, owners, lambda noisy: back(noisy.astype(kind, copy=False))

    def _noise_seed(self) -> int | None:
        """Return the seed of the noise, None for secure noise, which clones of a channel without a seed keep."""
        if self.random_state is None:
            return None
        if getattr(self, "_of_secure", False):
            warnings.warn(
                "random_state was set on a clone of a channel with secure noise, as ensembles set it on all that they "
                "hold: noise stays secure; make the channel with a random_state for noise that can be repeated",
                stacklevel=3,
            )
            return None
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _auxiliary_records(self) -> Float[np.ndarray, "n d"] | None:
        """Return the auxiliary records, their columns in the order of those of the rows."""
        if self.auxiliary is None:
            return None
        names = getattr(self, "feature_names_in_", None)
        auxiliary, _ = on_host(ordered_as(None if names is None else names.tolist(), self.auxiliary))
        records = np.array(auxiliary, dtype=np.float64, order="C")
        if records.ndim != 2 or records.shape[1] != self.n_features_in_:
            raise GuaranteeError(
                f"auxiliary of shape {records.shape}: give rows of {self.n_features_in_} features, as X has"
            )
        return records

    def _prepare(self) -> None:
        """Make what a pickle does not take along: the ledger, digests of public records, moments of rows."""
        if hasattr(self, "_own"):
            return
        ledger = self._common_ledger()
        moments = self.calibration_.moments
        self._identity = Identity(ledger.key, self._double)
        self._number = 0 if ledger.foreign else ledger.number_of(self._plan.mechanism)
        self._near = ledger.near_copies(moments, private=self.auxiliary is None)
        self._public = PublicRecords((), _ALLOWED_BY)
        if (records := self._auxiliary_records()) is not None:
            contents = self._identity.contents(torch.from_numpy(records))
            self._public = PublicRecords(contents, _ALLOWED_BY)
            self._near.add_public(records, contents)
        mechanism = self._plan.mechanism
        self._own = OwnMoments(self.calibration_, mechanism.planned, mechanism.accepted)

    def _make_plan(self) -> Plan:
        """Plan the uses of a row by the target that it was fitted with."""
        target, accepted, _ = self._planned
        draws = None if self._seed is None else name_of(self._seed, self.calibration_.channel)
        return target.plan(self.calibration_, target.uses, accepted, frozen=draws is not None, draws=draws)

    def _common_ledger(self) -> Ledger:
        """Return the ledger that all clones of this channel have in common, or that of a file."""
        if not hasattr(self, "_ledger"):
            self._ledger = Ledger()
            if (kept := getattr(self, "_counted_in", None)) is not None:
                self._ledger = _ledger_of(kept)
        return self._ledger

    def _join_ledger(self) -> None:
        """Count in the ledger that was given, from before the first release on.

        Raises:
            GuaranteeError: If rows were released that it does not count.
        """
        if self.ledger is None:
            return
        before = self._common_ledger()
        after = Ledger.at(self.ledger, b"")
        if before is after or (before.path, before.number) == (after.path, after.number):
            return
        if before.counted:
            raise GuaranteeError(
                f"ledger = {self.ledger}: this channel or its clones have released rows that this file "
                "does not count: make a new channel with the ledger, and add what leakage() states here"
            )
        self._ledger = after

    def _ledger_here(self) -> Ledger:
        """Return the ledger that counts in this process. A fitted channel from another one counts new rows in its own.

        Raises:
            GuaranteeError: If this channel was not fitted where it comes from.
        """
        ledger = self._common_ledger()
        if not ledger.foreign:
            return ledger
        if not self._served:
            ledger.check_process()
        kept = self._counted_in
        identity = Identity.generate(self._double)
        self._elsewhere = None
        try:
            identity = identity.of_state(kept, filed=False)
            self._elsewhere = np.asarray(kept["rows"], np.int64)
        except GuaranteeError:
            warnings.warn(
                "this channel was fitted under another account, so rows that were used there are not recognised, and "
                "their uses add up: give it rows that are new, or a ledger=PATH",
                saved.UncountedWarning,
                stacklevel=4,
            )
        self._ledger = ledger.in_this_process(identity.key)
        self._identity = Identity(self._ledger.key, self._double)
        self._number = self._ledger.number_of(self._plan.mechanism)
        return self._ledger

    def _charge(
        self, contents: Sequence[bytes], owners: list[Any] | None, near: Sequence[tuple[bytes, ...]]
    ) -> None:
        """Count one use of each row, or refuse all of them.

        Raises:
            BudgetError: If a row, or all rows of an owner, have no nats left.
            GuaranteeError: If this is a copy in another process, and no ledger counts for both.
        """
        ledger = self._ledger_here()
        plan = self._plan
        rows = words(self._identity.digests(contents))
        elsewhere = getattr(self, "_elsewhere", None)
        if elsewhere is not None and (used := np.isin(rows, elsewhere)).any():
            raise GuaranteeError(
                f"row {int(used.argmax())} was given to this channel in the process that fitted it, which would not "
                "know of uses here: transform it there, or give it a ledger=PATH, in which all processes count"
            )
        different, counts = np.unique(rows, return_counts=True)
        uses = np.ones_like(counts) if plan.once else counts

        def check(exposure: Exposure) -> None:
            if not len(over := plan.over_limit(exposure)):
                return
            row = int(np.isin(rows, different[over]).argmax())
            place = int(np.flatnonzero(different == rows[row])[0])
            seen = exposure.fresh_uses[place] + exposure.parallel[place]
            nats = exposure.nats(plan.mechanism)[place]
            limit = plan.limit
            counted = "over all fits and clones of this channel"
            if ledger.path is not None:
                counted += " and all else in its ledger"
            if exposure.siblings[place] > 0 and nats > limit:
                whose = "the owner, named before,"
                rest = ""
                if owners is not None:
                    whose, rest = (
                        f"the owner {owners[row]!r}",
                        "; owner=False counts a row by its values alone",
                    )
                raise BudgetError(
                    f"all rows of {whose} of row {row} would reveal {nats:.4g} nats together, {counted}, where "
                    f"{plan.most} uses are planned, for {limit:.4g} nats: plan for all rows of an owner, whose nats "
                    f"add up, by a target with records=, or transform fewer{rest}"
                )
            raise BudgetError(
                f"row {row} would be used {seen:g} times, {counted}, and reveal {nats:.4g} nats, where {plan.most} are "
                f"planned, for {limit:.4g} nats (a use under a smaller plan or through another channel counts for "
                "more): plan for more (uses=), or transform the records once and go on with the noisy ones"
            )

        ledger.charge(
            self._number,
            different,
            uses,
            check,
            releases=counts,
            once=plan.once,
            seeded=plan.seeded,
            owners=self._identity.owner_pairs(rows, owners),
            cells=self._identity.cell_pairs(rows, near),
        )

    def _charge_labels(
        self, labels: LabelCount, contents: Sequence[bytes], y: Any, owners: list[Any] | None
    ) -> None:
        """Count what ``y`` reveals of the rows, which a later step sees as it is, or that nobody counts it."""
        values = as_tensor(y).numpy() if isinstance(y, Tensor) else np.asarray(y)
        texts = [[_text(value) for value in np.atleast_1d(row)] for row in values]
        if len(texts) != len(contents):
            raise GuaranteeError(
                f"y of shape {values.shape}: give one entry for each of {len(contents)} rows"
            )
        different = {text for row in texts for text in row}
        if labels.classes is not None and len(different) > labels.classes:
            raise GuaranteeError(
                f"y has {len(different)} different values: classes = {labels.classes} counts no more, so give their "
                "real number, or leave classes out for numbers to be predicted, which are not counted"
            )
        listed = [
            [int.from_bytes(blake2b(text.encode(), digest_size=7).digest()) for text in row] for row in texts
        ]
        digests = self._identity.digests(contents)
        counted = labels.rows(digests, listed, [False] * len(digests), self._identity)
        pairs = self._identity.owner_pairs(words(digests), owners)
        none = np.zeros(0, np.int64)
        self._common_ledger().charge(
            self._number, none, none, lambda exposure: None, labels=counted, owners=pairs
        )

    def _sentence(self, values: float, labels: float | None, *, of_row: bool = False) -> str:
        """Say whom nats are about, and what they leave out.

        Args:
            values: Nats of the values.
            labels: Nats of labels, None if they are not counted.
            of_row: Whether they are about one row, also where it has an owner.
        """
        ledger = self._common_ledger()
        uncovered = [_AROUND]
        secure = self._seed is None
        if not ledger.foreign:
            seeded, unknown = ledger.seeded()
            secure &= not seeded
            uncovered += [*([EARLIER_SEEDS] if unknown else []), *ledger.uncovered()]
        if self.auxiliary is None:
            uncovered.append(OWN_NOISE)
        counted = ""
        group = 1
        if ledger.path is None:
            uncovered.append(
                "uses in other runs, processes and engines are not known, nor of channels made apart"
            )
        else:
            counted = f", counted in {ledger.path} {ledger.about()}"
        owners = np.zeros(0, np.int64) if ledger.foreign or of_row else ledger.owners(ledger.records())
        if owned := len(owners) > 0 and bool(owners.all()):
            group = int(np.unique(owners, return_counts=True)[1].max())
        return state(
            f"all noisy copies of rows{counted}",
            secure=secure,
            labels="uncounted" if labels is None else labels,
            added=values,
            unit="owner" if owned else "record",
            group=group,
            uncovered=uncovered,
        ).sentence

    def _ledger_note(self) -> dict[str, Any]:
        """Name the ledger, and the rows that it and this channel know, for a copy in another process."""
        ledger = self._common_ledger()
        if ledger.path is not None:
            return {"path": str(ledger.path), "number": ledger.number.hex()}
        if ledger.foreign:
            return dict(self._counted_in)
        place = {"path": None, "number": ledger.number.hex(), "process": process().hex()}
        if not hasattr(self, "calibration_"):
            return place
        elsewhere = getattr(self, "_elsewhere", None)
        identity = Identity(ledger.key, self._double)
        rows = [ledger.records(), self._fitted, *([] if elsewhere is None else [elsewhere])]
        return place | {
            "name": identity.name,
            "sealed": identity.sealed_key(),
            "rows": np.unique(np.concatenate(rows)),
        }


def _warn_of_units(records: Float[np.ndarray, "n d"]) -> None:
    """Warn of columns in very different units, of which natural noise covers some and hardly changes others."""
    if (deviations := unlike_units(records)) is not None:
        narrow, wide = deviations
        warnings.warn(
            f"standard deviations of columns are {narrow:.2g} to {wide:.2g}, and natural noise is the same "
            "for all, so that it covers some and hardly changes others: standardize columns by public "
            "records before the channel, or take shape='white', whose noise follows the data",
            stacklevel=3,
        )


def _ledger_of(kept: Mapping[str, Any]) -> Ledger:
    """Find the ledger that a copy of a channel counts in.

    Raises:
        GuaranteeError: If its file is another one than before.
    """
    number = bytes.fromhex(kept["number"])
    if kept["path"] is None:
        return Ledger.in_memory(number, b"", bytes.fromhex(kept["process"]))
    ledger = Ledger.open(kept["path"])
    if ledger.number != number:
        raise GuaranteeError(
            f"ledger = {ledger.path}: it is another one than that in which this channel has counted: bring that back"
        )
    return ledger


def _text(value: Any) -> str:
    """Write a label, of whatever type of number, as one text."""
    whole = isinstance(value, np.number | np.bool_ | int | float) and float(value).is_integer()
    return str(int(value)) if whole else str(value)
