"""The privacy event, all that an accountant may read of a training."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

DP_MECHANISMS = ("dpsgd", "dppsac")
"""Mechanisms that the accountants of DP were derived for."""


@dataclass(frozen=True)
class PrivacyEvent:
    """Use of private records by a training, all that an accountant may read.

    Attributes:
        mechanism: ``none``, ``channel``, ``dpsgd``, ``dppsac``, ``parameter_noise``,
            ``gradient_compression``, ``large_batch``, ``compression``, or the name of an outside trainer.
        sampling: How batches were drawn: ``shuffled`` epochs, or ``poisson``.
        population: Records that could be drawn.
        batch_size: Records in a step; the expected number under Poisson sampling.
        steps: Optimisation steps done.
        uses: Most often that any one record was used: counted for shuffled batches; under Poisson sampling,
            whose draws are secret, the number of steps, which bounds it.
        shape: Channel shape, if a channel.
        capacity: κ in nats per use, if a channel.
        noise: ``fresh`` or ``frozen``, if a channel.
        noise_multiplier: Noise standard deviation over ``max_grad_norm``, if DP.
        max_grad_norm: Clipping bound of a record's gradient, if DP.
    """

    mechanism: str
    sampling: Literal["shuffled", "poisson"]
    population: int
    batch_size: int
    steps: int
    uses: int
    shape: str | None = None
    capacity: float | None = None
    noise: Literal["fresh", "frozen"] | None = None
    noise_multiplier: float | None = None
    max_grad_norm: float | None = None

    @property
    def sample_rate(self) -> float:
        """Probability that a record takes part in a step."""
        return self.batch_size / self.population

    @property
    def bound(self) -> Literal["nats", "epsilon"] | None:
        """Kind of bound that an accountant was derived for, or None for training without one, as by clipping alone."""
        if self.mechanism == "channel":
            return "nats"
        private = self.mechanism in DP_MECHANISMS and self.sampling == "poisson" and self.noise_multiplier
        return "epsilon" if private else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dataclasses.asdict(self)
