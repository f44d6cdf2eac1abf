"""The channel as a transformer in scikit-learn's way."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _clone_parametrized
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from leakbound.accounting.leakage import Held
from leakbound.channels.shapes import shape_named
from leakbound.engine.calibrations import OwnMoments, unlike_units, warn_of_records
from leakbound.engine.identity import Identity, refuse_shared, words
from leakbound.engine.ledger import Ledger
from leakbound.engine.records import Layout
from leakbound.engine.refusals import BudgetError, GuaranteeError
from leakbound.engine.release import CentredSampler, RecordNoise, name_of
from leakbound.engine.targets import Target, as_target
from leakbound.randomness.sources import NoiseSource, SecureNoise


class Channel(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Add calibrated noise to every record, so that the rest of a pipeline reveals a bounded number of nats of each.

    ``fit`` calibrates and ``transform`` releases: each call is one use of each row, also that of
    ``fit_transform``. Uses are counted by the values of a row, over all fits, copies and clones of a channel
    in this process (folds and candidates of a search, a score after a fit), and refused beyond the plan of
    the target. In other processes a channel with a plan refuses to work. What is released is compared with
    the calibration: range, directions, and the capacity that the rows' own moments give. ``fit`` warns of
    natural noise for columns in very different units. A calibrated channel without this interface is a
    :class:`leakbound.channels.GaussianChannel`.

    Args:
        target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Identification``. A number is a capacity in
            nats per use.
        shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
        weights: (n_features,), relative noise variances, for the shape ``personalized``.
        auxiliary: (n, n_features), public or auxiliary records from the same distribution to calibrate to.
            Without them ``fit`` calibrates to the records that it is given. The channel is then a statistic
            of these, and neither its noise nor its attributes should be published. A pickle of it holds their
            exact mean and covariance. If there are more than 4,096 features and fewer records than features,
            it holds the records themselves.
        random_state: By default noise is secure and fresh at each call. With a seed it is a function of the
            seed and of the record: equal records get equal noise, which makes experiments reproducible and
            gives no protection.
        value_range: Least and largest value that a record may have. By default the range of the calibration
            records, extended by half its width on both sides.
        accept_capacity: Nats of all planned uses together that the moments of the rows may give. Default: up
            to 25 % more than the calibration's, with a warning from 5 %.

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
    ) -> None:
        self.target = target
        self.shape = shape
        self.weights = weights
        self.auxiliary = auxiliary
        self.random_state = random_state
        self.value_range = value_range
        self.accept_capacity = accept_capacity
        self.ledger = ledger

    def __sklearn_clone__(self) -> Channel:
        """Clone the channel. The clone's uses are counted with those of this channel."""
        other = _clone_parametrized(self)
        other._ledger = self._counted()
        return other

    def fit(self, X: Any, y: Any = None) -> Channel:  # noqa: N803
        """Calibrate the channel to ``X``, or to the auxiliary records.

        Args:
            X: (n_samples, n_features), at least two rows.
            y: Ignored.

        Raises:
            GuaranteeError: If all records are equal, the auxiliary ones have other features or are those of
                X, or no channel meets the target.
        """
        target, shape = as_target(self.target), shape_named(self.shape)
        if target.uses is not None and self.ledger is None:
            self._counted().check_process()
        # The records to calibrate to: the auxiliary ones, which must not be those of X, or X itself.
        least = 2 if self.auxiliary is None else 1
        private = np.array(validate_data(self, X, dtype=np.float64, ensure_min_samples=least), order="C")
        records = private
        if self.auxiliary is not None:
            records = np.array(self.auxiliary, dtype=np.float64, order="C")
            if records.ndim != 2 or records.shape[1] != self.n_features_in_:
                raise GuaranteeError(
                    f"auxiliary of shape {records.shape}: give rows of {self.n_features_in_} features, as X has"
                )
            refuse_shared(records, private)
        if self.value_range is not None and len(np.atleast_1d(self.value_range)) != 2:
            raise GuaranteeError(
                f"value_range = {self.value_range!r}: give the least and the largest value, or None"
            )
        # The channel, and what its releases are compared with.
        self.layout_ = Layout.of(torch.from_numpy(records), self.value_range)
        weights = None if self.weights is None else np.asarray(self.weights)
        self.calibration_ = target.calibrate(records, shape, weights, target.uses or 1)
        self._own = OwnMoments(self.calibration_, target.uses or 1, self.accept_capacity)
        self._seed = None
        if self.random_state is not None:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        # Warnings about the calibration, and the ledger that counts from now on.
        warn_of_records(records, self.calibration_)
        if self.shape == "natural" and (deviations := unlike_units(records)) is not None:
            narrow, wide = deviations
            warnings.warn(
                f"standard deviations of columns are {narrow:.2g} to {wide:.2g}, and natural noise is the same "
                "for all, so that it covers some and hardly changes others: standardize columns by public "
                "records before the channel, or take shape='white', whose noise follows the data",
                stacklevel=2,
            )
        self._count(target, torch.from_numpy(records))
        self._near = self._counted().near_copies(self.calibration_.moments)
        if self.auxiliary is not None:
            self._near.add_public(records, self._identity.contents(torch.from_numpy(records)))
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n_samples n_features"]:  # noqa: N803
        """Add noise to each row, which is one use of it.

        Args:
            X: (n_samples, n_features), clean.

        Returns:
            Noisy rows, float64, not clipped.

        Raises:
            BudgetError: If a row has no uses left.
            GuaranteeError: If a value is out of range, if a row varies in directions in which no calibration
                record does, and noise that follows these does not hide it, or if the moments of the rows give
                over 25 % more capacity than promised.
        """
        check_is_fitted(self)
        records = np.array(validate_data(self, X, dtype=np.float64, reset=False), order="C")
        self.layout_.check(torch.from_numpy(records))
        self.calibration_.check_directions(records)
        self._own.show(records, [row.tobytes() for row in records])
        contents = self._charge(torch.from_numpy(records))
        self._near.show(records, contents)
        source: NoiseSource = SecureNoise()
        if self._seed is not None:
            halves = np.frombuffer(b"".join(content[:16] for content in contents), np.uint64).reshape(-1, 2)
            copy = name_of(self._seed, self.calibration_.channel)
            source = RecordNoise(self._seed, copy, halves[:, 0], halves[:, 1])
        moments = self.calibration_.moments
        sampler = CentredSampler(self.calibration_.channel, moments.mean, on_grid=self._seed is None)
        return sampler.apply(torch.from_numpy(records), source).numpy()

    def leakage(self, uses: int | None = None) -> float:
        """Bound the nats that all uses of a record reveal, by default those so far of the record that leaks most.

        The bound is an average over records of the calibration's distribution. All fits and clones count, each
        use by the nats of the channel that it went through. Equal copies, with a seed, are one use. Channels
        that were made apart, such as two steps of a ``FeatureUnion``, do not know of each other without a
        common ``ledger``.

        Raises:
            GuaranteeError: If ``uses`` is negative.
        """
        check_is_fitted(self)
        if uses is not None and uses < 0:
            raise GuaranteeError(
                f"uses = {uses}: give the calls of transform that a record takes part in, at least 0"
            )
        mechanism = self._plan.mechanism
        if uses is not None:
            return mechanism.nats(uses)
        held = self._counted().held(self._number)
        return float(max([mechanism.nats(1), *held.nats(mechanism)]))

    @property
    def own_capacity_(self) -> float | None:
        """Nats of all planned uses by the moments of the rows that were released. Keep it private."""
        check_is_fitted(self)
        capacity = self._own.capacity
        return None if capacity is None else capacity.nats

    def _counted(self) -> Ledger:
        """Return the uses of all channels that this one was cloned from or to, or those of the ledger."""
        if not hasattr(self, "_ledger"):
            self._ledger = Ledger()
        return self._ledger

    def _count(self, target: Target, records: Tensor) -> None:
        """Count by nats of this channel from now on."""
        if self.ledger is not None:
            before, after = self._counted(), Ledger.at(self.ledger, b"")
            if before is not after and (before.path, before.number) != (after.path, after.number):
                if before.counted:
                    raise GuaranteeError(
                        f"ledger = {self.ledger}: this channel or its clones have released rows that this file "
                        "does not count: make a new channel with the ledger, and add what leakage() states here"
                    )
                self._ledger = after
        ledger, needed = self._counted(), Identity.new(records).double
        self._identity = Identity(ledger.key, ledger.double(records.shape[1], needed))
        made = self.calibration_
        draws = None if self._seed is None else name_of(self._seed, made.channel)
        self._plan = target.plan(
            made, target.uses, self.accept_capacity, frozen=draws is not None, draws=draws
        )
        self._number = self._counted().number_of(self._plan.mechanism)

    def _charge(self, records: Tensor) -> list[bytes]:
        """Count one use of each row, or refuse all of them, and return digests without a key.

        Raises:
            BudgetError: If a row has no nats left.
            GuaranteeError: If this is a copy in another process, and no ledger counts for both.
        """
        ledger, plan = self._counted(), self._plan
        contents = self._identity.contents(records)
        rows = words(self._identity.of(contents))
        different, counts = np.unique(rows, return_counts=True)
        uses = np.ones_like(counts) if plan.once else counts

        def check(held: Held) -> None:
            if len(over := plan.exceeded(held)):
                at = int(np.isin(rows, different[over]).argmax())
                place = int(np.flatnonzero(different == rows[at])[0])
                seen = held.fresh_uses[place] + held.parallel[place]
                nats = held.nats(plan.mechanism)[place]
                limit = plan.mechanism.nats(plan.most or 1)
                raise BudgetError(
                    f"row {at} would be used {seen:g} times, over all fits and "
                    f"clones of this channel, and reveal {nats:.4g} nats, where {plan.most} are planned, for "
                    f"{limit:.4g} nats (a use under a smaller plan or through another channel counts for more): plan "
                    "for more (uses=), or transform the records once and go on with the noisy ones"
                )

        ledger.charge(self._number, different, uses, check, releases=counts, once=plan.once)
        return contents
