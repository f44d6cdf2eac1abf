"""Members as the networks of a stack see them: clean images, fresh noise at each use, or one noisy copy."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.channels.sampling import ChannelSampler
from leakbound.config.defenses import NOISE_BATCHES
from leakbound.randomness.sources import NoiseSource, as_source
from leakbound.training.written_out import by_record

BLOCK = 32
"""Steps that noise is drawn for at once on a GPU, where a draw costs the same whatever its size."""
_CHUNK = 1024  # images per product where all members are transformed at once


class Inputs:
    """Images of chosen members, as the client lets its networks see them: here as they are given.

    Args:
        images: Members of all slots, on the device of the stack.
        rows: Members of each slot, rows of ``images``; on the same device.
        sampler: The channel, if there is one.
        sources: Of noise, or generators of it; one per slot, on the same device, for these inputs alone.
    """

    def __init__(self, images: Float[Tensor, "n colors height width"], rows: Int[Tensor, "slots members"]) -> None:
        self._images, self._rows = images, rows

    def take(self, indices: Int[Tensor, "slots batch"]) -> Float[Tensor, "slots batch colors height width"]:
        """Images for one step of every slot; ``indices`` count each slot's own members."""
        return by_record(self._images, self._rows.gather(1, indices))

    def state(self) -> dict[str, Any]:
        """All that the next images depend on, beyond the members and the seeds."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""


class FrozenInputs(Inputs):
    """One noisy copy of every member per slot, drawn at the start: one use of the channel in all."""

    def __init__(
        self,
        images: Float[Tensor, "n colors height width"],
        rows: Int[Tensor, "slots members"],
        sampler: ChannelSampler,
        sources: Sequence[NoiseSource | torch.Generator],
    ) -> None:
        drawn = [as_source(source) for source in sources]
        self._again = not any(source.secure for source in drawn)
        self._copies = images.new_empty((*rows.shape, *images.shape[1:]))
        for copy, own, source in zip(self._copies, rows, drawn, strict=True):
            copy.copy_(sampler.freeze(images[own], source))
        self._slots = torch.arange(len(drawn), device=images.device)

    def take(self, indices: Int[Tensor, "slots batch"]) -> Float[Tensor, "slots batch colors height width"]:
        """Images for one step of every slot."""
        return self._copies[self._slots, indices.T].transpose(0, 1)

    def state(self) -> dict[str, Any]:
        """Nothing where seeds draw the copies again; else the copies, or each start would be one more use."""
        return {} if self._again else {"copies": self._copies}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        if not self._again:
            self._copies.copy_(state["copies"])


class FreshInputs(Inputs):
    """Members with noise that is drawn anew at each use, independently for every slot."""

    def __init__(
        self,
        images: Float[Tensor, "n colors height width"],
        rows: Int[Tensor, "slots members"],
        sampler: ChannelSampler,
        sources: Sequence[NoiseSource | torch.Generator],
    ) -> None:
        # A gain acts on the image alone, so it is applied once and not at each use.
        if sampler.channel.gain is not None:
            images = torch.cat([sampler.signal(chunk) for chunk in images.split(_CHUNK)])
        super().__init__(images, rows)
        self._sampler = sampler
        block = 1 if sampler.channel.basis is None else NOISE_BATCHES
        self._streams = [_NoiseStream(sampler, as_source(source), block) for source in sources]

    def take(self, indices: Int[Tensor, "slots batch"]) -> Float[Tensor, "slots batch colors height width"]:
        """Images for one step of every slot."""
        drawn = [stream.draw(indices.shape[1]) for stream in self._streams]
        noise = drawn[0] if len(drawn) == 1 else torch.stack(drawn)
        taken = super().take(indices)
        in_place = taken.dtype == torch.float32 and (self._sampler.spacing is None or taken.is_contiguous())
        return self._sampler.release(taken, noise, out=taken if in_place else None)

    def state(self) -> dict[str, Any]:
        """All that the next noise depends on."""
        return {"streams": [stream.state() for stream in self._streams]}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from :meth:`state`."""
        for stream, saved in zip(self._streams, state["streams"], strict=True):
            stream.restore(saved)


class _NoiseStream:
    """Noise of one slot, drawn for ``block`` batches at a time; each row is given out once."""

    def __init__(self, sampler: ChannelSampler, source: NoiseSource, block: int) -> None:
        self._sampler, self._source, self._block = sampler, source, block
        self._before = source.state()
        self._used = block
        self._noise: tuple[Tensor, ...] = ()

    def draw(self, batch_size: int) -> Float[Tensor, "batch d"]:
        """Noise of one batch."""
        if self._used == self._block:
            self._before = self._source.state()
            self._noise = self._sampler.noise(self._block * batch_size, self._source).split(batch_size)
            self._used = 0
        self._used += 1
        return self._noise[self._used - 1]

    def state(self) -> dict[str, Any]:
        """The source's before the current block, and how much of the block is used."""
        rows = len(self._noise[0]) if self._noise else 0
        return {"before": self._before, "used": self._used, "batch_size": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Draw the current block again, of secure noise a new one, and skip what was used."""
        self._source.restore(state["before"])
        self._used = self._block
        if state["batch_size"]:
            self.draw(state["batch_size"])
            self._used = state["used"]
