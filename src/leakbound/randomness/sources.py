"""Sources of privacy noise: one that its seed repeats, and one that nobody repeats.

A secure normal number comes from a pair of independent uniform ones by the transform of Box and Muller, in
float64. It rejects nothing, so the bytes and operations that it takes tell nothing of what was drawn. Its
error is at most r 2⁻⁴⁹ + 2⁻⁵³/r at radius r; and its tails end where 126 random bits do, beyond 13 standard
deviations.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.randomness.cipher import Keystream, keystream
from leakbound.randomness.origin import PrivacyNoise
from leakbound.randomness.seeding import torch_generator

_CHUNK = 2**16  # numbers that are computed at once, which stay in a core's cache
_KEYED = 2**24  # numbers under one key
_POSITIVE = 2**63 - 1


@runtime_checkable
class NoiseSource(Protocol):
    """Independent draws for one purpose.

    Attributes:
        secure: Whether nobody can repeat the draws. Values protected by them are then released on a grid, in
            float64 until rounded, and there is no state to continue from.
    """

    secure: bool

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers on the device of the source."""

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Uniform numbers in [0, 1), multiples of 2⁻⁵³ in float64, on the device of the source."""

    def state(self) -> Tensor | None:
        """All that the next draws depend on, or None if there is nothing to keep."""

    def restore(self, state: Tensor | None) -> None:
        """Continue from :meth:`state`."""


class SeededNoise:
    """Draws of a torch generator: equal seeds give equal draws, and whoever knows the seed can subtract the noise.

    Args:
        generator: Belongs to this source alone. Draws are on its device.
    """

    secure = False

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers."""
        return torch.randn(tuple(shape), generator=self.generator, device=self.generator.device, dtype=dtype)

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Uniform numbers in [0, 1)."""
        # Uniform float32 numbers would lie on a grid of 2⁻²⁴.
        return torch.rand(count, generator=self.generator, device=self.generator.device, dtype=torch.float64)

    def state(self) -> Tensor:
        """The generator's."""
        return self.generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Continue from :meth:`state`.

        Raises:
            ValueError: If a source without a state gave it.
        """
        if state is None:
            raise ValueError("the state is that of secure noise; seeded noise cannot continue from it")
        self.generator.set_state(state)


class SecureNoise:
    """Draws that no seed repeats, safe to use in forked processes: each takes its key from the operating system.

    Args:
        device: Where draws are wanted. They are computed on the CPU.
    """

    secure = True

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """Standard normal numbers, computed in float64."""
        count = math.prod(shape)
        drawn = np.empty(count + count % 2)  # numbers come in pairs
        pairs = min(_CHUNK, drawn.size) // 2
        words, room = np.empty(3 * pairs, dtype=np.int64), np.empty(pairs)
        for start in range(0, drawn.size, _CHUNK):
            if start % _KEYED == 0:
                stream = Keystream()
            chunk = drawn[start : start + _CHUNK]
            pairs = chunk.size // 2
            own = words[: 3 * pairs].reshape(3, pairs)
            stream.fill(own.data)
            box_muller(own, out=chunk, room=room[:pairs])
        return torch.from_numpy(drawn[:count]).to(self.device, dtype).view(tuple(shape))

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Uniform numbers in [0, 1)."""
        return ((_words(count, self.device) >> 11) & (2**53 - 1)).double().mul_(2.0**-53)

    def state(self) -> None:
        """None: nothing is kept from draw to draw."""
        return

    def restore(self, state: Tensor | None) -> None:
        """Nothing to do: all noise is new.

        Raises:
            ValueError: If the state is that of a generator.
        """
        if state is not None:
            raise ValueError("the state is that of a generator, which secure noise does not repeat")


class StackedNoise:
    """Sources of several slots as one: row k of every draw is what source k draws.

    Args:
        sources: One for each slot, on one device, all secure or none.

    Raises:
        ValueError: If some of them are secure and others are not.
    """

    def __init__(self, sources: Sequence[NoiseSource]) -> None:
        self.sources = list(sources)
        if len({source.secure for source in self.sources}) > 1:
            raise ValueError(
                "some sources are secure and others are seeded: the slots of a stack have noise of a kind"
            )
        self.secure = self.sources[0].secure
        self._reserve = self._used = 0
        self._before: list[Tensor | None] = []
        self._drawn = torch.empty(len(self.sources), 0)

    def reserve(self, numbers: int) -> None:
        """From now on draw so many numbers of each source at a time, and give them out by and by, each once."""
        self._reserve = numbers

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal numbers (slots, ...).

        Raises:
            ValueError: If the shape begins with another number of slots.
        """
        if shape[0] != len(self.sources):
            raise ValueError(f"noise of shape {tuple(shape)} asked for {len(self.sources)} slots")
        count = math.prod(shape[1:])
        if count > self._reserve:
            return self._draw(count, dtype).view(tuple(shape))
        if self._used + count > self._drawn.shape[1] or self._drawn.dtype != dtype:
            self._before, self._used = [source.state() for source in self.sources], 0
            self._drawn = self._draw(self._reserve, dtype)
        self._used += count
        return self._drawn[:, self._used - count : self._used].view(tuple(shape))

    def uniform(self, count: int) -> Tensor:
        """Uniform numbers in [0, 1), (slots, count)."""
        return torch.stack([source.uniform(count) for source in self.sources])

    def state(self) -> dict[str, Any]:
        """Those of the sources, before what is reserved was drawn, and how much of it was given out."""
        left = self._used < self._drawn.shape[1]
        before = self._before if left else [source.state() for source in self.sources]
        return {
            "sources": before,
            "used": self._used if left else 0,
            "numbers": self._drawn.shape[1] if left else 0,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from :meth:`state`: draw again what is reserved, of secure noise new numbers. Skip what was used."""
        for source, saved in zip(self.sources, state["sources"], strict=True):
            source.restore(saved)
        self._before, self._used = list(state["sources"]), state["used"]
        self._drawn = self._draw(state["numbers"], torch.float32)

    def _draw(self, count: int, dtype: torch.dtype) -> Float[Tensor, "slots count"]:
        """The next numbers of every source."""
        first = self.sources[0]
        if not isinstance(first, SeededNoise):
            return torch.stack([source.normal((count,), dtype) for source in self.sources])
        drawn = torch.empty(len(self.sources), count, dtype=dtype, device=first.generator.device)
        for row, source in zip(drawn, self.sources, strict=True):
            if isinstance(source, SeededNoise):
                row.normal_(generator=source.generator)
            else:
                row.copy_(source.normal((count,), dtype))
        return drawn


class SecureDraws:
    """Secure noise as NumPy arrays, with the two methods of ``numpy.random.Generator`` that simulations draw by."""

    def __init__(self) -> None:
        self._source = SecureNoise()

    def standard_normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Standard normal numbers, float64."""
        return self._source.normal((size,) if isinstance(size, int) else size).numpy()

    def random(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Uniform numbers in [0, 1), float64."""
        shape = (size,) if isinstance(size, int) else size
        return self._source.uniform(math.prod(shape)).numpy().reshape(shape)


def box_muller(
    words: Int[np.ndarray, "3 pairs"],
    out: Float[np.ndarray, " numbers"] | None = None,
    room: Float[np.ndarray, " pairs"] | None = None,
) -> Float[np.ndarray, " numbers"]:
    """Two independent standard normal numbers from each column of three random words, √(−2 ln u) (cos θ, sin θ).

    u takes 63 bits of the first word and, which matters in the tails, 63 more of the second, and is never 0.
    Θ is the third, as an angle in [−π, π]. With t = tan(θ/2), which takes less time than a sine and a cosine,
    these are 2/(1 + t²) − 1 and 2t/(1 + t²).

    Args:
        words: Uniform 64-bit words, int64. The sign bits of the first two, which are not used, are cleared.
        out: Where the numbers are written, float64; by default new memory.
        room: Float64 memory to compute in, likewise.

    Returns:
        Float64, twice as many as there are columns: all cosines, then all sines.

    Source:
        Box and Muller 1958.
    """
    pairs = words.shape[1]
    out = np.empty(2 * pairs) if out is None else out
    room = np.empty(pairs) if room is None else room
    radius, half = out[:pairs], out[pairs:]
    np.bitwise_and(words[:2], _POSITIVE, out=words[:2])
    np.copyto(room, words[1])
    np.copyto(radius, words[0])
    room += 0.5
    room *= 2.0**-63
    radius += room
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    np.copyto(half, words[2])
    half *= math.pi * 2.0**-64
    np.tan(half, out=half)
    np.multiply(half, half, out=room)
    room += 1.0
    room *= 0.5
    np.divide(radius, room, out=room)
    half *= room
    np.subtract(room, radius, out=radius)
    return out


def noise_source(
    origin: str, seed: int, *words: str | int, device: str | torch.device = "cpu"
) -> SeededNoise | SecureNoise:
    """Source of noise for the purpose that ``words`` name.

    Args:
        origin: ``seeded`` or ``secure``, the configuration's ``privacy_noise``.
        seed: Seed of the configuration. Secure noise does not depend on it.
        *words: Run, replica and purpose, e.g. ``"noise"``.
        device: Where draws are wanted.

    Raises:
        ValueError: If there is no such origin.
    """
    check_origin(origin)
    return (
        SecureNoise(device)
        if origin == "secure"
        else SeededNoise(torch_generator(seed, *words, device=device))
    )


def check_origin(origin: str) -> None:
    """Refuse an unknown origin of noise. A misspelled one must never give seeded noise.

    Raises:
        ValueError: If ``origin`` is not a value of the setting ``privacy_noise``.
    """
    if origin not in get_args(PrivacyNoise):
        raise ValueError(
            f"privacy_noise = {origin!r}: must be {' or '.join(map(repr, get_args(PrivacyNoise)))}"
        )


def as_source(source: NoiseSource | torch.Generator) -> NoiseSource:
    """A source as it is; a generator as seeded noise."""
    return SeededNoise(source) if isinstance(source, torch.Generator) else source


def _words(count: int, device: torch.device) -> Int[Tensor, " count"]:
    """Random 64-bit words."""
    if count == 0:
        return torch.empty(0, dtype=torch.int64, device=device)
    return torch.frombuffer(keystream(8 * count), dtype=torch.int64).to(device)
