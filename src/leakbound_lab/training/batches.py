"""Records of a step, and their images as networks see them: clean, with fresh noise, or a noisy copy.

Records are drawn on the CPU, so that every device sees the same batches. Uses are counted for shuffled
batches, whose composition is no secret.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.channels.sampling import ChannelSampler
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound_lab.config.defenses import NOISE_BATCHES
from leakbound_lab.models import memory
from leakbound_lab.models.layers import ImageBatches, ImageTensor, by_record

Members = Int[Tensor, "slots members"]
BatchRows = Int[Tensor, "slots batch"]
Sources = Sequence[NoiseSource | torch.Generator]
_CHUNK = 1024  # images per product where all members are transformed at once
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
        indices = torch.cat([self._pending, *epochs])
        batches = indices[:count]
        self._pending = indices[count:].clone()
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


class DrawBuffer:
    """Draws of the slots of a stack for several steps at a time, each of which is used once.

    Args:
        sources: What the slots draw from. Nothing else may draw from it.
        draw: Function that makes the draws of the next steps.
    """

    def __init__(self, sources: Sequence[Any], draw: Callable[..., Sequence[Tensor]]) -> None:
        self._sources = list(sources)
        self._draw = draw
        self._before = [source.state() for source in self._sources]
        self._size: tuple[int, ...] = ()
        self._draws_ahead: Sequence[Tensor] = ()
        self._used = 0

    def draw(self, *size: int) -> Tensor:
        """Return the draws of the next step, of a size that does not change."""
        if self._used == len(self._draws_ahead):
            self._draw_ahead(*size)
        self._used += 1
        return self._draws_ahead[self._used - 1]

    def _draw_ahead(self, *size: int) -> None:
        """Make the draws of the next steps."""
        self._before = [source.state() for source in self._sources]
        self._size = size
        self._draws_ahead = self._draw(*size)
        self._used = 0

    def state(self) -> dict[str, Any]:
        """Return the states before what was drawn ahead, and how much of it is used."""
        return {"before": self._before, "size": self._size, "used": self._used}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`: draw ahead again, and skip what was used. Secure draws are new ones."""
        for source, saved in zip(self._sources, state["before"], strict=True):
            source.restore(saved)
        self._before = list(state["before"])
        self._draws_ahead = ()
        self._used = 0
        if state["used"]:
            self._draw_ahead(*state["size"])
            self._used = state["used"]


class StackedBatches(DrawBuffer):
    """Batches of the slots of a stack, drawn for 256 steps at a time and moved to its device together.

    They are those of slots that draw step by step. A batch that is drawn ahead counts only from its step on.

    Args:
        batches: Batches of each slot, of equal sizes. Nothing else may draw from them.
        device: Device of the stack.
    """

    def __init__(self, batches: Sequence[ShuffledBatches], device: str | torch.device) -> None:
        def steps() -> Sequence[Int[Tensor, "slots size"]]:
            """Draw the indices of the next steps, and move them together."""
            indices = torch.stack([of_slot.draw_several(_AHEAD) for of_slot in batches], dim=1)
            return indices.to(device, non_blocking=True).unbind()

        super().__init__(batches, steps)

    def uses(self, slot: int) -> Int[Tensor, " population"]:
        """Return how often a slot has used each of its records."""
        uses: Tensor = self._sources[slot].uses
        ahead = [indices[slot] for indices in self._draws_ahead[self._used :]]
        return uses - torch.cat(ahead).cpu().bincount(minlength=len(uses)) if ahead else uses


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


class CyclicBatches:
    """The same batches in each epoch, parts of one permutation of all records. Each is ascending.

    A record takes part in one step of each epoch, after exactly as many steps. The order is no secret.

    Args:
        population: Number of records.
        size: Records in a batch, a divisor of ``population``.
        generator: Draws the permutation, on the CPU.
    """

    def __init__(self, population: int, size: int, generator: torch.Generator) -> None:
        order = torch.randperm(population, generator=generator)
        self._batches = order.view(-1, size).sort(dim=1).values
        self._step = 0

    def draw(self) -> Int[Tensor, " size"]:
        """Return the indices of the next batch."""
        batch = self._batches[self._step % len(self._batches)]
        self._step += 1
        return batch

    def state(self) -> dict[str, Any]:
        """Return the number of batches so far."""
        return {"step": self._step}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        self._step = state["step"]


class PaddedBatches(DrawBuffer):
    """Poisson or cyclic batches of the slots of a stack, padded to one width with -1 and moved to its device.

    On a GPU they are drawn for 32 steps at a time. The batches are those of slots that draw step by step.

    Args:
        batches: Batches of each slot. Nothing else may draw from them.
        device: Device of the stack.
    """

    def __init__(self, batches: Sequence[PoissonBatches | CyclicBatches], device: str | torch.device) -> None:
        def steps() -> Sequence[Int[Tensor, "slots width"]]:
            """Draw the indices of the next steps, and move them together."""
            count = memory.POISSON_STEPS.on(device)
            indices = [padded([of_slot.draw() for of_slot in batches]) for _ in range(count)]
            moved = torch.cat(indices, dim=1).to(device, non_blocking=True)
            return moved.split([step.shape[1] for step in indices], dim=1)

        super().__init__(batches, steps)


def padded(batches: Sequence[Tensor]) -> Int[Tensor, "slots width"]:
    """Pad batches (size,) of different sizes to rows of one width, a multiple of 16, with -1."""
    width = -(-max(len(batch) for batch in batches) // WIDTH) * WIDTH
    rows = torch.full((len(batches), width), -1)
    for row, batch in zip(rows, batches, strict=True):
        row[: len(batch)] = batch
    return rows


def require_same_form(argument: Tensor, returned: Any, method: Callable[..., Any]) -> Tensor:
    """Check that a method of a client step returned a tensor like the one that it was given, and return it.

    Args:
        argument: Tensor that it was given.
        returned: Its result.
        method: The method, for the message.

    Raises:
        ValueError: If the result is no tensor, or has another shape or type.
    """
    form = (tuple(argument.shape), argument.dtype)
    got = (tuple(returned.shape), returned.dtype) if isinstance(returned, Tensor) else type(returned).__name__
    if got != form:
        name = getattr(method, "__qualname__", str(method))
        raise ValueError(f"{name} returned {got}; return a tensor like the one that was given, {form}")
    return returned


class Inputs:
    """Images of chosen members as networks see them: unchanged, or released again for each use.

    Args:
        images: Members of all slots, on the device of the stack.
        rows: Members of each slot as rows of ``images``, on the same device.
        release: Function from images and a source to what a network sees, called for each use and each slot,
            without its padding. None leaves images unchanged.
        sources: Source of noise, or generator, of each slot, on the same device. Nothing else may draw from
            it.
    """

    def __init__(
        self,
        images: ImageTensor,
        rows: Members,
        release: Callable[..., Tensor] | None = None,
        sources: Sources = (),
    ) -> None:
        self._images = images
        self._rows = rows
        self._release = release
        self._sources = [as_source(source) for source in sources]
        self.capturable = release is None  # then with_noise draws nothing, and a CUDA graph may hold it

    def take(self, indices: BatchRows) -> ImageBatches:
        """Return images for one step of every slot.

        Args:
            indices: (slots, batch), positions among each slot's members, -1 for padding.
        """
        return self.with_noise(indices, self.noise(indices.shape[1]))

    def noise(self, batch_size: int) -> Tensor | None:
        """Draw noise (slots, batch, d) for the next step, or return None if there is none."""
        return None

    def with_noise(self, indices: BatchRows, noise: Tensor | None) -> ImageBatches:
        """Return images for a step with given noise. A captured step may call it: it reads tensors only."""
        batch = by_record(self._images, self._rows.gather(1, indices.clamp(min=0)))
        if self._release is None:
            return batch
        # A slot's draws must not depend on the padding, which follows from the other slots.
        for images, records, source in zip(batch, indices >= 0, self._sources, strict=True):
            clean = images[records]
            images[records] = require_same_form(clean, self._release(clean, source), self._release)
        return batch

    def state(self) -> dict[str, Any]:
        """Return all that the next images depend on, besides the members and the seeds."""
        return {"sources": [source.state() for source in self._sources]} if self._sources else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for source, saved in zip(self._sources, state.get("sources", ()), strict=True):
            source.restore(saved)


class FrozenInputs(Inputs):
    """One noisy copy of every member per slot, drawn at the start: one use of the channel in all.

    Members that are the same row of the images have the same copy.
    """

    def __init__(self, images: ImageTensor, rows: Members, sampler: ChannelSampler, sources: Sources) -> None:
        of_slots = [as_source(source) for source in sources]
        self._repeatable = not any(source.secure for source in of_slots)
        copies = images.new_empty((*rows.shape, *images.shape[1:]))
        for copy, members, source in zip(copies, rows, of_slots, strict=True):
            copy.copy_(sampler.freeze(images[members], source))
            _, first, record = np.unique(members.cpu().numpy(), return_index=True, return_inverse=True)
            if len(first) < len(record):
                copy.copy_(copy[torch.from_numpy(first[record]).to(copy.device)])
        places = torch.arange(rows.numel(), device=images.device).view(rows.shape)
        super().__init__(copies.flatten(0, 1), places)

    def state(self) -> dict[str, Any]:
        """Return the copies, or nothing if seeds draw them again. New copies would be one more use."""
        return {} if self._repeatable else {"copies": self._images}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        if not self._repeatable:
            self._images.copy_(state["copies"])


class FreshInputs(Inputs):
    """Members with noise that is drawn again at each use, independently for every slot."""

    def __init__(self, images: ImageTensor, rows: Members, sampler: ChannelSampler, sources: Sources) -> None:
        # A gain acts on the image alone, so it is applied once and not at each use.
        if sampler.channel.gain is not None:
            images = torch.cat([sampler.signal(chunk) for chunk in images.split(_CHUNK)])
        super().__init__(images, rows)
        self._sampler = sampler
        steps = memory.NOISE_STEPS.on(images.device) or (
            1 if sampler.channel.basis is None else NOISE_BATCHES
        )
        noisy = [as_source(source) for source in sources]

        def several_steps(batch_size: int) -> Sequence[Tensor]:
            """Draw the noise of the next steps, each row of which is used once."""
            return sampler.stacked_noise(steps * batch_size, noisy).split(batch_size, dim=1)

        self._noise = DrawBuffer(noisy, several_steps)

    def noise(self, batch_size: int) -> Float[Tensor, "slots batch d"]:
        """Return the noise of the next step of every slot."""
        return self._noise.draw(batch_size)

    def with_noise(self, indices: BatchRows, noise: Tensor | None) -> ImageBatches:
        """Return images for a step with given noise."""
        batch = super().with_noise(indices, None)
        if noise is None:
            raise ValueError("images under fresh noise need it: give that of the step")
        in_place = batch.dtype == torch.float32 and (self._sampler.spacing is None or batch.is_contiguous())
        return self._sampler.release(batch, noise, out=batch if in_place else None)

    def state(self) -> dict[str, Any]:
        """Return the states of the sources before the current block of noise, and how much of it is used."""
        return self._noise.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Draw the current block again, or a new one if noise is secure, and skip what was used."""
        self._noise.restore(state)
