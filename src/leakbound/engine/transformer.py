"""The channel as a transformer in scikit-learn's way."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from leakbound.channels.covariance import population_moments
from leakbound.channels.sampling import ChannelSampler
from leakbound.engine.noise import RecordNoise
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.targets import as_target
from leakbound.randomness.sources import NoiseSource, SecureNoise
from leakbound.registry import SHAPES


class Channel(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Adds noise to records so that what follows in a pipeline tells a bounded number of nats of each.

    ``fit`` calibrates, ``transform`` releases: each call is one use of each row. A calibrated channel without this
    interface is a :class:`leakbound.channels.Channel`.

    Args:
        target: ``Capacity``, ``Leakage``, ``Reconstruction`` or ``Naming``; a number is a capacity in nats per use.
        shape: Registered shape of noise, e.g. ``natural``, ``white``, ``rate_distortion``.
        weights: (n_features,), relative noise variances, for the shape ``personalized``.
        auxiliary: (n, n_features), public or auxiliary records of the same law to calibrate to. Without them ``fit``
            takes the records that it is given, and the channel is then a statistic of these, which nobody should
            publish.
        random_state: By default noise is secure and fresh at each call. With a seed it is a function of the seed and
            of the record: equal records get equal noise, which makes experiments repeatable and protects nobody.

    Attributes:
        calibration_: The channel, with the moments that it was calibrated to.
        n_features_in_: Number of features.
    """

    def __init__(
        self,
        target: Any = 1.0,
        *,
        shape: Any = "natural",
        weights: Any = None,
        auxiliary: Any = None,
        random_state: Any = None,
    ) -> None:
        self.target = target
        self.shape = shape
        self.weights = weights
        self.auxiliary = auxiliary
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Channel:  # noqa: N803
        """Calibrate the channel to ``X``, or to the auxiliary records.

        Args:
            X: (n_samples, n_features), at least two rows.
            y: Ignored.

        Raises:
            GuaranteeError: If all records are equal, the auxiliary ones have other features, or no channel meets the
                target.
        """
        asked, form = as_target(self.target), SHAPES.get(self.shape)
        known = self.auxiliary is not None
        records = validate_data(self, X, dtype=np.float64, ensure_min_samples=1 if known else 2)
        if known:
            records = np.asarray(self.auxiliary, dtype=np.float64)
            if records.ndim != 2 or records.shape[1] != self.n_features_in_:
                raise GuaranteeError(
                    f"auxiliary of shape {records.shape}: give rows of {self.n_features_in_} features, as X has"
                )
        moments = population_moments(records)
        if not moments.total_variance > 0:
            raise GuaranteeError("all records are equal, so there is nothing to hide: calibrate to others")
        spectrum = form.decompose(moments, weights=None if self.weights is None else np.asarray(self.weights))
        self.calibration_ = asked.solve(form, spectrum, moments, asked.uses or 1)
        self._seed = None
        if self.random_state is not None:
            self._seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return self

    def transform(self, X: Any) -> Float[np.ndarray, "n_samples n_features"]:  # noqa: N803
        """One use of the channel for each row.

        Args:
            X: (n_samples, n_features), clean.

        Returns:
            Float64 values of float32 precision, not clipped.

        Raises:
            GuaranteeError: If a row varies in directions in which no calibration record does, and noise that follows
                these does not hide it.
        """
        check_is_fitted(self)
        records = validate_data(self, X, dtype=np.float64, reset=False)
        self.calibration_.check_directions(records)
        channel = self.calibration_.channel
        sampler = ChannelSampler(channel, (1, 1, channel.dimension), on_grid=self._seed is None)
        clean = torch.from_numpy(records.astype(np.float32)).reshape(len(records), 1, 1, -1)
        source: NoiseSource = SecureNoise()
        if self._seed is not None:
            words = np.array([_words(row) for row in records], dtype=np.uint64).reshape(-1, 2)
            source = RecordNoise(self._seed, "transform", words[:, 0], words[:, 1])
        return sampler.apply(clean, source).reshape(records.shape).double().numpy()

    def leakage(self, uses: int = 1) -> float:
        """Nats that some uses with fresh noise tell together of one record, at most; with a seed one use is all.

        Raises:
            GuaranteeError: If ``uses`` is negative.
        """
        check_is_fitted(self)
        if uses < 0:
            raise GuaranteeError(f"uses = {uses}: give the calls of transform that a record takes part in, at least 0")
        return self.calibration_.information(uses)


def _words(row: Float[np.ndarray, " n_features"]) -> Any:
    """Two words that tell a record from others."""
    return np.frombuffer(blake2b(row.tobytes(), digest_size=16).digest(), np.uint64)
