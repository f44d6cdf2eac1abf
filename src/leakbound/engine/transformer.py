"""The channel as a transformer in scikit-learn's way."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, _clone_parametrized
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from leakbound.channels.directions import Directions
from leakbound.channels.shapes import shape_named
from leakbound.engine.noise import CentredSampler, RecordNoise
from leakbound.engine.own_moments import OwnMoments
from leakbound.engine.record_uses import RecordUses, refuse_shared
from leakbound.engine.records import Layout
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import as_target
from leakbound.randomness.sources import NoiseSource, SecureNoise


class Channel(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Add calibrated noise to every record, so that the rest of a pipeline reveals a bounded number of nats of each.

    ``fit`` calibrates, ``transform`` releases: each call is one use of each row, also that of
    ``fit_transform``. Uses are counted by the values of a row, over all fits, copies and clones of a channel
    in this process (folds and candidates of a search, a score after a fit), and refused beyond the plan of
    the target; in other processes a channel with a plan refuses to work. What is released is compared with
    the calibration: range, directions, and the capacity that the rows' own moments give. A calibrated channel
    without this interface is a :class:`leakbound.channels.GaussianChannel`.

    Args:
        target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Naming``; a number is a capacity in nats
            per use.
        shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
        weights: (n_features,), relative noise variances, for the shape ``personalized``.
        auxiliary: (n, n_features), public or auxiliary records of the same law to calibrate to. Without them
            ``fit`` takes the records that it is given, and the channel is then a statistic of these, which
            nobody should publish, neither noise nor attributes; a pickle of it holds their exact mean and
            covariance, and of fewer than features, with more than 4,096 of these, the records themselves.
        random_state: By default noise is secure and fresh at each call. With a seed it is a function of the
            seed and of the record: equal records get equal noise, which makes experiments reproducible and
            gives no protection.
        value_range: Least and largest value that a record may have; by default half the width of the
            calibration records more than they show on both sides.
        accept_capacity: Nats of all planned uses together that the moments of the rows may give; by default
            up to 25 % more than the calibration's are released, with a warning from 5 %.

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
    ) -> None:
        self.target = target
        self.shape = shape
        self.weights = weights
        self.auxiliary = auxiliary
        self.random_state = random_state
        self.value_range = value_range
        self.accept_capacity = accept_capacity

    def __sklearn_clone__(self) -> Channel:
        """A clone, whose uses are counted with those of this channel."""
        other = _clone_parametrized(self)
        other._uses = self._counted()
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
        asked, form = as_target(self.target), shape_named(self.shape)
        if asked.uses is not None:
            self._counted().check_process()
        known = self.auxiliary is not None
        records = np.array(
            validate_data(self, X, dtype=np.float64, ensure_min_samples=1 if known else 2), order="C"
        )
        if known:
            given, records = records, np.array(self.auxiliary, dtype=np.float64, order="C")
            if records.ndim != 2 or records.shape[1] != self.n_features_in_:
                raise GuaranteeError(
                    f"auxiliary of shape {records.shape}: give rows of {self.n_features_in_} features, as X has"
                )
            refuse_shared(records, given)
        if self.value_range is not None and len(np.atleast_1d(self.value_range)) != 2:
            raise GuaranteeError(
                f"value_range = {self.value_range!r}: give the least and the largest value, or None"
            )
        self.layout_ = Layout.of(torch.from_numpy(records), self.value_range)
        weights = None if self.weights is None else np.asarray(self.weights)
        self.calibration_ = asked.calibrate(records, form, weights, asked.uses or 1)
        self._plan = asked.uses
        self._own = OwnMoments(self.calibration_, asked.uses or 1, self.accept_capacity)
        self._seed = None
        if self.random_state is not None:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n_samples n_features"]:  # noqa: N803
        """One use of the channel for each row.

        Args:
            X: (n_samples, n_features), clean.

        Returns:
            Float64, not clipped.

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
        channel = self.calibration_.channel
        copy = None if self._seed is None else _name_of(self._seed, channel)
        self._counted().take(records, self._plan, copy)
        source: NoiseSource = SecureNoise()
        if self._seed is not None and copy is not None:
            words = np.array([_words(row) for row in records], dtype=np.uint64).reshape(-1, 2)
            source = RecordNoise(self._seed, copy.hex(), words[:, 0], words[:, 1])
        sampler = CentredSampler(channel, self.calibration_.moments.mean, on_grid=self._seed is None)
        return sampler.apply(torch.from_numpy(records), source).numpy()

    def leakage(self, uses: int | None = None) -> float:
        """Nats that some uses reveal together of one record, at most; by default those so far of the most used one.

        Uses of other fits and clones count as uses of this channel. Equal copies, with a seed, are one use.

        Raises:
            GuaranteeError: If ``uses`` is negative.
        """
        check_is_fitted(self)
        if uses is not None and uses < 0:
            raise GuaranteeError(
                f"uses = {uses}: give the calls of transform that a record takes part in, at least 0"
            )
        return self.calibration_.information(max(1, self._counted().most) if uses is None else uses)

    @property
    def own_capacity_(self) -> float | None:
        """Nats of all planned uses by the moments of the rows that were released; a statistic that stays with them."""
        check_is_fitted(self)
        found = self._own.capacity
        return None if found is None else found.nats

    def _counted(self) -> RecordUses:
        """Uses of all channels that this one was cloned from or to."""
        if not hasattr(self, "_uses"):
            self._uses = RecordUses()
        return self._uses


def _name_of(seed: int, channel: Any) -> bytes:
    """Name of a seed and a channel: noise of one draw on two scales would be solved for the record."""
    axes = channel.basis.weights if isinstance(channel.basis, Directions) else channel.basis
    parts = (np.array([seed]), channel.variances, channel.gain, channel.mean, axes)
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.digest()


def _words(row: Float[np.ndarray, " n_features"]) -> Any:
    """Two words that tell a record from others."""
    return np.frombuffer(blake2b(row.tobytes(), digest_size=16).digest(), np.uint64)
