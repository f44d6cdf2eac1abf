"""Records of a step, drawn on the CPU so that every device sees the same batches.

Uses are counted for shuffled batches, whose composition is no secret.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training import memory

_AHEAD = 256  # steps that indices are drawn for at a time
WIDTH = 16  # padded batches are multiples of it: few shapes, for each of which a GPU captures a step


class ShuffledBatches:
    """Batches of exactly ``size`` records from permutations of all records, one after another.

    A batch that an epoch's end cuts short is filled from the next permutation. So the numbers of uses of all
    records differ by at most one, whatever the number of steps. The batches follow from the configuration's
    seed and are no secret. Accountants of channels therefore count uses and claim no amplification by
    sampling.

    Args:
        population: Number of records.
        size: Records in a batch, at most ``population``.
        generator: Draws the permutations, on the CPU. Nothing else may draw from it.
    """

    def __init__(self, population: int, size: int, generator: torch.Generator) -> None:
        self.size = size
        self.uses = torch.zeros(population, dtype=torch.int64)
        self._generator = generator
        self._pending = torch.empty(0, dtype=torch.int64)

    def draw(self) -> Int[Tensor, " size"]:
        """Draw the indices of the next batch."""
        return self.draw_several(1)[0]

    def draw_several(self, steps: int) -> Int[Tensor, "steps size"]:
        """Draw the indices of the next batches.

        Args:
            steps: Number of batches.
        """
        count = steps * self.size
        missing = -(-max(0, count - len(self._pending)) // len(self.uses))
        epochs = [torch.randperm(len(self.uses), generator=self._generator) for _ in range(missing)]
        drawn = torch.cat([self._pending, *epochs])
        batches = drawn[:count]
        self._pending = drawn[count:].clone()
        self.uses += batches.bincount(minlength=len(self.uses))
        return batches.view(steps, self.size)

    def state(self) -> dict[str, Any]:
        """Return all that the next batches depend on."""
        return {
            "generator": self._generator.get_state(),
            "pending": self._pending.clone(),
            "uses": self.uses.clone(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._generator.set_state(state["generator"])
        self._pending = state["pending"]
        self.uses = state["uses"].clone()


class StackedBatches:
    """Batches of the slots of a stack, drawn for 256 steps at a time and moved to its device together.

    Batches, states and counts are those of slots that draw step by step. A batch that is drawn ahead counts
    only from its step on.

    Args:
        batches: Batches of each slot, of equal sizes. Nothing else may draw from them.
        device: Device of the stack.
    """

    def __init__(self, batches: Sequence[ShuffledBatches], device: str | torch.device) -> None:
        self._batches = list(batches)
        self._device = device
        self._before = [of_slot.state() for of_slot in self._batches]
        self._used = _AHEAD
        self._drawn = torch.empty(0, dtype=torch.int64)

    def draw(self) -> Int[Tensor, "slots size"]:
        """Return the indices of the next step."""
        if self._used == _AHEAD:
            self._before = [of_slot.state() for of_slot in self._batches]
            drawn = torch.stack([of_slot.draw_several(_AHEAD) for of_slot in self._batches], dim=1)
            self._drawn = drawn.to(self._device, non_blocking=True)
            self._used = 0
        self._used += 1
        return self._drawn[self._used - 1]

    def now(self, slot: int) -> ShuffledBatches:
        """Return the batches of a slot with state and counts as if they had been drawn step by step."""
        ahead = self._batches[slot]
        now = ShuffledBatches(len(ahead.uses), ahead.size, torch.Generator())
        now.restore(self._before[slot])
        if len(self._drawn):
            now.draw_several(self._used)
        return now

    def state(self) -> list[dict[str, Any]]:
        """Return all that the next batches of each slot depend on."""
        return [self.now(slot).state() for slot in range(len(self._batches))]

    def restore(self, state: list[dict[str, Any]]) -> None:
        """Resume from :meth:`state`."""
        for batches, saved in zip(self._batches, state, strict=True):
            batches.restore(saved)
        self._before = list(state)
        self._used = _AHEAD
        self._drawn = self._drawn[:0]


class PoissonBatches:
    """Batches in which each record is included independently with probability ``rate``. They can be empty.

    Uses are not counted. Amplification by sampling holds as long as the drawn records are secret. It needs
    only the rate and the number of steps.

    Args:
        population: Number of records.
        rate: Probability of each record, in (0, 1].
        source: Source of privacy noise, or a generator, on the CPU. Nothing else may draw from it.
    """

    def __init__(self, population: int, rate: float, source: NoiseSource | torch.Generator) -> None:
        self.rate = rate
        self._population = population
        self._source = as_source(source)

    def draw(self) -> Int[Tensor, " size"]:
        """Draw the indices of the next batch, ascending."""
        # In float64 the probability is the rate to 1e-16.
        return (self._source.uniform(self._population) < self.rate).nonzero().squeeze(1)

    def state(self) -> dict[str, Any]:
        """Return all that the next batches depend on, which is nothing for a secure source."""
        return {"source": self._source.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._source.restore(state["source"])


class PaddedBatches:
    """Poisson batches of the slots of a stack, padded to one width and moved to its device.

    On a GPU they are drawn for 32 steps at a time. The batches are those of slots that draw step by step.

    Args:
        batches: Batches of each slot. Nothing else may draw from them.
        device: Device of the stack.
    """

    def __init__(self, batches: Sequence[PoissonBatches], device: str | torch.device) -> None:
        self._batches = list(batches)
        self._device = device
        self._before = [of_slot.state() for of_slot in self._batches]
        self._used = 0
        self._drawn: Sequence[Tensor] = ()

    def draw(self) -> Int[Tensor, "slots width"]:
        """Return the indices of the next step, -1 for padding."""
        if self._used == len(self._drawn):
            self._draw_ahead()
        self._used += 1
        return self._drawn[self._used - 1]

    def _draw_ahead(self) -> None:
        """Draw the batches of the next steps, and move them together."""
        self._before = [of_slot.state() for of_slot in self._batches]
        count = memory.POISSON_STEPS.on(self._device)
        steps = [padded([of_slot.draw() for of_slot in self._batches]) for _ in range(count)]
        moved = torch.cat(steps, dim=1).to(self._device, non_blocking=True)
        self._drawn = moved.split([step.shape[1] for step in steps], dim=1)
        self._used = 0

    def state(self) -> dict[str, Any]:
        """Return the states before what was drawn ahead, and how much of it is used."""
        return {"before": self._before, "used": self._used}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`: draw ahead again, and skip what was used. Secure batches are new ones."""
        for of_slot, saved in zip(self._batches, state["before"], strict=True):
            of_slot.restore(saved)
        self._before = list(state["before"])
        self._drawn = ()
        if state["used"]:
            self._draw_ahead()
        self._used = state["used"]


def padded(batches: Sequence[Tensor]) -> Int[Tensor, "slots width"]:
    """Pad batches (size,) of different sizes to rows of one width, a multiple of 16, with -1."""
    width = -(-max(len(batch) for batch in batches) // WIDTH) * WIDTH
    rows = torch.full((len(batches), width), -1)
    for row, batch in zip(rows, batches, strict=True):
        row[: len(batch)] = batch
    return rows
