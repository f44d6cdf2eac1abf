"""Records of a step, drawn on the CPU so that every device sees the same batches; counted where that is no secret."""

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from leakbound.randomness.sources import NoiseSource, as_source


class ShuffledBatches:
    """Batches of exactly ``size`` records from permutations of all records, one after another.

    A batch that an epoch's end cuts short is filled from the next permutation. So every record is used equally often,
    give or take one, whatever the number of steps. Who is in a batch follows from the configuration's seed and is no
    secret: accountants of channels count uses, and take no credit for sampling.

    Args:
        population: Number of records.
        size: Records in a batch, at most ``population``.
        generator: Of the CPU; belongs to these batches alone.
    """

    def __init__(self, population: int, size: int, generator: torch.Generator) -> None:
        self.size = size
        self.uses = torch.zeros(population, dtype=torch.int64)
        self._generator = generator
        self._pending = torch.empty(0, dtype=torch.int64)

    def draw(self) -> Int[Tensor, " size"]:
        """Indices of the next batch."""
        while len(self._pending) < self.size:
            permutation = torch.randperm(len(self.uses), generator=self._generator)
            self._pending = torch.cat([self._pending, permutation])
        batch, self._pending = self._pending[: self.size], self._pending[self.size :]
        self.uses += batch.bincount(minlength=len(self.uses))
        return batch

    def state(self) -> dict[str, Any]:
        """All that the next batches depend on."""
        return {"generator": self._generator.get_state(), "pending": self._pending.clone(), "uses": self.uses.clone()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self._generator.set_state(state["generator"])
        self._pending = state["pending"]
        self.uses = state["uses"]


class PoissonBatches:
    """Batches in which each record takes part independently with probability ``rate``; they can be empty.

    Nobody's draws are counted. What accountants make of sampling holds as long as nobody knows who was drawn, and
    needs the rate and the number of steps alone.

    Args:
        population: Number of records.
        rate: Probability in (0, 1].
        source: Of the CPU, or a generator; belongs to these batches alone. It is a source of privacy noise.
    """

    def __init__(self, population: int, rate: float, source: NoiseSource | torch.Generator) -> None:
        self.rate = rate
        self._population = population
        self._source = as_source(source)

    def draw(self) -> Int[Tensor, " size"]:
        """Indices of the next batch, ascending."""
        chosen = self._source.uniform(self._population) < self.rate  # in float64 the probability is the rate to 1e-16
        return chosen.nonzero().squeeze(1)

    def state(self) -> dict[str, Any]:
        """All that the next batches depend on: of a secure source nothing."""
        return {"source": self._source.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        self._source.restore(state["source"])
