"""The privacy event, the facts about a training from which every bound is computed."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

DP_MECHANISMS = ("dpsgd", "dppsac", "channel_dpsgd")
"""Mechanisms that the accountants of DP were derived for."""


@dataclass(frozen=True)
class PrivacyEvent:
    """Use of private records by a training, the only input of an accountant.

    Attributes:
        mechanism: ``none``, ``channel``, ``dpsgd``, ``dppsac``, ``channel_dpsgd``, ``parameter_noise``,
            ``gradient_compression``, ``large_batch``, ``compression``, or the name of an outside trainer.
        sampling: How batches were drawn: ``shuffled`` epochs, or ``poisson``.
        population: Number of records that could be drawn.
        batch_size: Records in a step. Under Poisson sampling, their expected number.
        steps: Number of optimisation steps.
        uses: Number of uses of the most used record. For shuffled batches it is counted. Poisson samples are
            secret, so under Poisson sampling it is the number of steps, an upper bound.
        shape: Channel shape, for a channel.
        capacity: κ in nats per use, for a channel.
        noise: ``fresh`` or ``frozen``, for a channel.
        noise_multiplier: Noise standard deviation over ``max_grad_norm``, for DP.
        max_grad_norm: Clipping bound of a record's gradient, for DP.
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
    def fresh_uses(self) -> int | float:
        """Uses of the most used record with independent noise: one in all if the noise is frozen.

        Of Poisson samples it is the expected number. They do not depend on the record, so what uploads reveal
        about it is at most the mean over samples of what they reveal to somebody who knows the sample, and
        nats are concave in the uses.
        """
        uses = self.steps * self.sample_rate if self.sampling == "poisson" else self.uses
        return uses if self.noise == "fresh" else min(uses, 1)

    @property
    def sample_rate(self) -> float:
        """Probability that a record takes part in a step."""
        return self.batch_size / self.population

    @property
    def bound(self) -> Literal["nats", "epsilon"] | None:
        """Kind of bound that an accountant was derived for, or None without one, e.g. with clipping alone."""
        if self.mechanism == "channel":
            return "nats"
        private = self.mechanism in DP_MECHANISMS and self.sampling == "poisson" and self.noise_multiplier
        return "epsilon" if private else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dataclasses.asdict(self)
