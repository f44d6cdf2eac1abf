"""Limit on the uses of a record, which all ranks share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

_ROUNDING = 1e-9  # relative, of nats that are compared


@dataclass(frozen=True)
class Plan:
    """Limit on the uses of a record with independent noise.

    Attributes:
        most: Planned uses, None for no limit.
        information: Returns the nats of a number of uses through the engine's channel.
        adds: Whether the target is met as long as nats of all channels stay within those of the planned uses.
        frozen: Whether noise is frozen.
        seeded: Whether a seed repeats it.
        facts: Facts about the channel and the plan, which all ranks must share.
    """

    most: int | None
    information: Callable[[int], float]
    adds: bool
    frozen: bool
    seeded: bool
    facts: Mapping[str, Any]

    @property
    def once(self) -> bool:
        """True if every draw for a record gives the same copy, in whatever run."""
        return self.frozen and self.seeded

    def exceeded(
        self, looks: Int[np.ndarray, " records"], others: Float[np.ndarray, " records"]
    ) -> Int[np.ndarray, " over"]:
        """Find the records with more uses than planned, or more nats with those of other channels added."""
        if self.most is None:
            return np.zeros(0, np.int64)
        over: np.ndarray = looks > self.most
        limit = self.information(self.most) * (1.0 + _ROUNDING)
        for place in np.flatnonzero((others > 0) & (looks > 0)):
            over[place] |= not self.adds or others[place] + self.information(int(looks[place])) > limit
        return np.flatnonzero(over)
