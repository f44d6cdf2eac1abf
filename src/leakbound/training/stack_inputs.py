"""Members as the networks of a stack see them: clean images, fresh noise at each use, or a noisy copy."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.channels.sampling import ChannelSampler
from leakbound.config.defenses import NOISE_BATCHES
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training import memory
from leakbound.training.known_layers import ImageTensor
from leakbound.training.stacked_layers import by_record

Members = Int[Tensor, "slots members"]
Chosen = Int[Tensor, "slots batch"]
Batches = Float[Tensor, "slots batch colors height width"]
Sources = Sequence[NoiseSource | torch.Generator]
_CHUNK = 1024  # images per product where all members are transformed at once


def same_form(wanted: Tensor, returned: Any, method: Callable[..., Any]) -> Tensor:
    """Check that a method of a client step returned a tensor like the one that it was given, and return it.

    Args:
        wanted: Tensor that it was given.
        returned: Its result.
        method: The method, for the message.

    Raises:
        ValueError: If the result is no tensor, or has another shape or type.
    """
    form = (tuple(wanted.shape), wanted.dtype)
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
        released: Function from images and a source to what a network sees, called for each use and each slot.
            None leaves images unchanged.
        sources: Source of noise, or generator, of each slot, on the same device. Nothing else may draw from
            it.
    """

    capturable = True  # seen draws nothing, so a CUDA graph may hold it

    def __init__(
        self,
        images: ImageTensor,
        rows: Members,
        released: Callable[..., Tensor] | None = None,
        sources: Sources = (),
    ) -> None:
        self._images = images
        self._rows = rows
        self._released = released
        self._sources = [as_source(source) for source in sources]
        self.capturable = released is None

    def take(self, indices: Chosen) -> Batches:
        """Return images for one step of every slot.

        Args:
            indices: (slots, batch), positions among each slot's members.
        """
        return self.seen(indices, self.noise(indices.shape[1]))

    def noise(self, batch_size: int) -> Tensor | None:
        """Draw noise (slots, batch, d) for the next step, or return None if there is none."""
        return None

    def seen(self, indices: Chosen, noise: Tensor | None) -> Batches:
        """Return images for a step with given noise. A captured step may call it: it reads tensors only."""
        taken = by_record(self._images, self._rows.gather(1, indices))
        if self._released is None:
            return taken
        slots = zip(taken, self._sources, strict=True)
        return torch.stack([same_form(slot[0], self._released(*slot), self._released) for slot in slots])

    def state(self) -> dict[str, Any]:
        """Return all that the next images depend on, besides the members and the seeds."""
        return {"sources": [source.state() for source in self._sources]} if self._sources else {}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        for source, saved in zip(self._sources, state.get("sources", ()), strict=True):
            source.restore(saved)


class FrozenInputs(Inputs):
    """One noisy copy of every member per slot, drawn at the start: one use of the channel in all."""

    def __init__(self, images: ImageTensor, rows: Members, sampler: ChannelSampler, sources: Sources) -> None:
        drawn = [as_source(source) for source in sources]
        self._again = not any(source.secure for source in drawn)
        self._copies = images.new_empty((*rows.shape, *images.shape[1:]))
        for copy, members, source in zip(self._copies, rows, drawn, strict=True):
            copy.copy_(sampler.freeze(images[members], source))
        self._slots = torch.arange(len(drawn), device=images.device)

    def seen(self, indices: Chosen, noise: Tensor | None) -> Batches:
        """Return noisy copies for a step."""
        return self._copies[self._slots, indices.T].transpose(0, 1)

    def state(self) -> dict[str, Any]:
        """Return the copies, or nothing if seeds draw them again. New copies would be one more use."""
        return {} if self._again else {"copies": self._copies}

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`."""
        if not self._again:
            self._copies.copy_(state["copies"])


class FreshInputs(Inputs):
    """Members with noise that is drawn again at each use, independently for every slot."""

    def __init__(self, images: ImageTensor, rows: Members, sampler: ChannelSampler, sources: Sources) -> None:
        # A gain acts on the image alone, so it is applied once and not at each use.
        if sampler.channel.gain is not None:
            images = torch.cat([sampler.signal(chunk) for chunk in images.split(_CHUNK)])
        super().__init__(images, rows)
        self._sampler = sampler
        self._block = memory.NOISE_STEPS.on(images.device) or (
            1 if sampler.channel.basis is None else NOISE_BATCHES
        )
        self._sources = [as_source(source) for source in sources]
        self._before = [source.state() for source in self._sources]
        self._used = self._block
        self._noise: tuple[Tensor, ...] = ()

    def noise(self, batch_size: int) -> Float[Tensor, "slots batch d"]:
        """Return the noise of the next step of every slot. Each row is used once."""
        if self._used == self._block:
            self._before = [source.state() for source in self._sources]
            drawn = self._sampler.stacked_noise(self._block * batch_size, self._sources)
            self._noise = drawn.split(batch_size, dim=1)
            self._used = 0
        self._used += 1
        return self._noise[self._used - 1]

    def seen(self, indices: Chosen, noise: Tensor | None) -> Batches:
        """Return images with noise."""
        taken = super().seen(indices, None)
        if noise is None:
            raise ValueError("images under fresh noise need it: give that of the step")
        in_place = taken.dtype == torch.float32 and (self._sampler.spacing is None or taken.is_contiguous())
        return self._sampler.release(taken, noise, out=taken if in_place else None)

    def state(self) -> dict[str, Any]:
        """Return the states of the sources before the current block of noise, and how much of it is used."""
        rows = self._noise[0].shape[1] if self._noise else 0
        return {
            "streams": [{"before": before, "used": self._used, "batch_size": rows} for before in self._before]
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Draw the current block again, or a new one if noise is secure, and skip what was used."""
        for source, saved in zip(self._sources, state["streams"], strict=True):
            source.restore(saved["before"])
        self._before = [saved["before"] for saved in state["streams"]]
        self._used = self._block
        self._noise = ()
        first = state["streams"][0]
        if first["batch_size"]:
            self.noise(first["batch_size"])
            self._used = first["used"]
