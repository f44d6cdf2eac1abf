"""Sources of privacy noise: one that a seed reproduces, and one that nobody can reproduce.

Secure normal numbers come in pairs from two independent uniform numbers, by the Box-Muller transform in
float64. The transform rejects nothing, so the bytes and operations that it takes reveal nothing about the
numbers drawn. Its error is at most r 2⁻⁴⁹ + 2⁻⁵³/r at radius r. Its tails are limited by the 126 random bits
of the radius, and end beyond 13 standard deviations.

Unpredictable bytes are keys of the operating system, stretched by AES-256 in counter mode. By default every
stream takes a new key and discards it at the end. There is no state that a checkpoint could hold, that a
forked process or a restored virtual machine could repeat, or that two threads could share. The memory of a
process holds no key of noise that it drew earlier.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol, get_args, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from leakbound.randomness.seeding import PrivacyNoise, torch_generator

KEY_BYTES = 32
# In 2²⁸ blocks, of which the cipher repeats none. They are distinguished from random ones with an advantage of 2⁻⁷³.
_MOST_BYTES = 2**32
_ZEROS = bytes(2**20)
_CHUNK = 2**16  # numbers that are computed at once, so that they fit into a core's cache
_KEYED = 2**24  # numbers that are drawn under one key
_POSITIVE = 2**63 - 1


class Keystream:
    """Random bytes of one key, in pieces.

    Args:
        key: 32 bytes, from which the stream can be repeated. By default new ones from the operating system.

    Source:
        NIST SP 800-38A, AES-256 in counter mode from counter 0, of OpenSSL.
    """

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # slow import

        self._encryptor = Cipher(
            algorithms.AES(os.urandom(KEY_BYTES) if key is None else key), modes.CTR(bytes(16))
        ).encryptor()
        self._left = _MOST_BYTES

    def fill(self, buffer: bytearray | memoryview) -> None:
        """Overwrite contiguous bytes with the next ones of the stream.

        Raises:
            ValueError: If more than 2³² bytes would be drawn under one key.
        """
        view = memoryview(buffer).cast("B")
        if len(view) > self._left:
            raise ValueError(
                f"{len(view)} bytes asked, {self._left} left: one key gives {_MOST_BYTES} bytes at most"
            )
        self._left -= len(view)
        for start in range(0, len(view), len(_ZEROS)):
            piece = view[start : start + len(_ZEROS)]
            self._encryptor.update_into(memoryview(_ZEROS)[: len(piece)], piece)


@runtime_checkable
class NoiseSource(Protocol):
    """Independent draws for one purpose.

    Attributes:
        secure: Whether nobody can reproduce the draws. If so, protected values are computed in float64 and
            released on a grid, and there is no state to resume from.
    """

    secure: bool

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers on the device of the source."""

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Draw uniform numbers in [0, 1), float64 multiples of 2⁻⁵³, on the device of the source."""

    def state(self) -> Tensor | None:
        """Return the state that determines the next draws, or None if there is none."""

    def restore(self, state: Tensor | None) -> None:
        """Resume from :meth:`state`."""


class SeededNoise:
    """Draws of a torch generator. Equal seeds give equal draws, so whoever knows the seed can subtract the noise.

    Args:
        generator: Generator that no other source uses. Draws are on its device.
    """

    secure = False

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers."""
        return torch.randn(tuple(shape), generator=self.generator, device=self.generator.device, dtype=dtype)

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Draw uniform numbers in [0, 1)."""
        # Uniform float32 numbers would lie on a grid of 2⁻²⁴.
        return torch.rand(count, generator=self.generator, device=self.generator.device, dtype=torch.float64)

    def state(self) -> Tensor:
        """Return the state of the generator."""
        return self.generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Resume from :meth:`state`.

        Raises:
            ValueError: If the state is that of secure noise.
        """
        if state is None:
            raise ValueError("the state is that of secure noise; seeded noise cannot continue from it")
        self.generator.set_state(state)


class SecureNoise:
    """Draws that no seed reproduces. They are safe in forked processes, because keys come from the operating system.

    Args:
        device: Device of the draws. They are computed on the CPU.
    """

    secure = True

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float64) -> Tensor:
        """Draw standard normal numbers, computed in float64."""
        count = math.prod(shape)
        numbers = np.empty(count + count % 2)  # numbers come in pairs
        pairs = min(_CHUNK, numbers.size) // 2
        words = np.empty(3 * pairs, dtype=np.int64)
        room = np.empty(pairs)
        for start in range(0, numbers.size, _CHUNK):
            if start % _KEYED == 0:
                stream = Keystream()
            chunk = numbers[start : start + _CHUNK]
            pairs = chunk.size // 2
            uniform = words[: 3 * pairs].reshape(3, pairs)
            stream.fill(uniform.data)
            box_muller(uniform, out=chunk, room=room[:pairs])
        return torch.from_numpy(numbers[:count]).to(self.device, dtype).view(tuple(shape))

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Draw uniform numbers in [0, 1)."""
        stream = bytearray(8 * count)
        Keystream().fill(stream)
        words = torch.from_numpy(np.frombuffer(stream, dtype=np.int64)).to(self.device)
        return ((words >> 11) & (2**53 - 1)).double().mul_(2.0**-53)

    def state(self) -> None:
        """Return None, because nothing is kept from draw to draw."""
        return

    def restore(self, state: Tensor | None) -> None:
        """Check that there is no state to resume from, because all noise is new.

        Raises:
            ValueError: If the state is that of a generator.
        """
        if state is not None:
            raise ValueError("the state is that of a generator, which secure noise does not repeat")


class StackedNoise:
    """Sources of several slots as one. Row k of every draw comes from source k.

    Args:
        sources: One source for each slot, on one device, all of them secure or none.

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
        """Draw so many numbers from each source at a time from now on, and return each of them once."""
        self._reserve = numbers

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers (slots, ...).

        Raises:
            ValueError: If the shape begins with another number of slots.
        """
        if shape[0] != len(self.sources):
            raise ValueError(f"noise of shape {tuple(shape)} asked for {len(self.sources)} slots")
        count = math.prod(shape[1:])
        if count > self._reserve:
            return self._draw(count, dtype).view(tuple(shape))
        if self._used + count > self._drawn.shape[1] or self._drawn.dtype != dtype:
            self._before = [source.state() for source in self.sources]
            self._used = 0
            self._drawn = self._draw(self._reserve, dtype)
        self._used += count
        return self._drawn[:, self._used - count : self._used].view(tuple(shape))

    def uniform(self, count: int) -> Tensor:
        """Draw uniform numbers in [0, 1), (slots, count)."""
        return torch.stack([source.uniform(count) for source in self.sources])

    def state(self) -> dict[str, Any]:
        """Return the states of the sources before they drew the reserve, and how much of the reserve is used."""
        left = self._used < self._drawn.shape[1]
        before = self._before if left else [source.state() for source in self.sources]
        return {
            "sources": before,
            "used": self._used if left else 0,
            "numbers": self._drawn.shape[1] if left else 0,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from :meth:`state`: draw the reserve again (new numbers if secure), and skip what was used."""
        for source, saved in zip(self.sources, state["sources"], strict=True):
            source.restore(saved)
        self._before = list(state["sources"])
        self._used = state["used"]
        self._drawn = self._draw(state["numbers"], torch.float32)

    def _draw(self, count: int, dtype: torch.dtype) -> Float[Tensor, "slots count"]:
        """Draw the next numbers from every source."""
        seeded = [source.generator for source in self.sources if isinstance(source, SeededNoise)]
        if len(seeded) < len(self.sources):
            return torch.stack([source.normal((count,), dtype) for source in self.sources])
        numbers = torch.empty(len(seeded), count, dtype=dtype, device=seeded[0].device)
        for row, generator in zip(numbers, seeded, strict=True):
            row.normal_(generator=generator)
        return numbers


class SecureDraws:
    """Secure noise as NumPy arrays, with the two methods of ``numpy.random.Generator`` that simulations use."""

    def __init__(self) -> None:
        self._source = SecureNoise()

    def standard_normal(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw standard normal numbers, float64."""
        return self._source.normal((size,) if isinstance(size, int) else size).numpy()

    def random(self, size: int | tuple[int, ...]) -> np.ndarray:
        """Draw uniform numbers in [0, 1), float64."""
        shape = (size,) if isinstance(size, int) else size
        return self._source.uniform(math.prod(shape)).numpy().reshape(shape)


def box_muller(
    words: Int[np.ndarray, "3 pairs"],
    out: Float[np.ndarray, " numbers"] | None = None,
    room: Float[np.ndarray, " pairs"] | None = None,
) -> Float[np.ndarray, " numbers"]:
    """Turn each column of three random words into two independent normal numbers, √(−2 ln u) (cos θ, sin θ).

    u has 63 bits of the first word and another 63 of the second, which matter in the tails. It is never 0.
    The third word is θ, an angle in [−π, π]. Cosine and sine are computed as 2/(1 + t²) − 1 and 2t/(1 + t²)
    with t = tan(θ/2), which is faster.

    Args:
        words: Uniform 64-bit words, int64. The unused sign bits of the first two are cleared in place.
        out: Float64 memory for the result. By default it is allocated.
        room: Float64 memory to compute in. By default it is allocated.

    Returns:
        Float64 numbers, twice as many as there are columns: first all cosines, then all sines.

    Source:
        Box and Muller 1958.
    """
    pairs = words.shape[1]
    out = np.empty(2 * pairs) if out is None else out
    room = np.empty(pairs) if room is None else room
    radius = out[:pairs]
    half = out[pairs:]
    np.bitwise_and(words[:2], _POSITIVE, out=words[:2])
    np.copyto(room, words[1])
    np.copyto(radius, words[0])
    room += 0.5
    room *= 2.0**-63
    radius += room
    radius *= 2.0**-63
    _in_place(torch.log, radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    np.copyto(half, words[2])
    half *= math.pi * 2.0**-64
    _in_place(torch.tan, half)
    np.multiply(half, half, out=room)
    room += 1.0
    room *= 0.5
    np.divide(radius, room, out=room)
    half *= room
    np.subtract(room, radius, out=radius)
    return out


def _in_place(function: Callable[..., Tensor], values: Float[np.ndarray, " n"]) -> None:
    """Replace values by a function of each. Torch's take several at once, in half of NumPy's time, as accurately."""
    shared = torch.from_numpy(values)
    function(shared, out=shared)


def noise_source(
    origin: str, seed: int, *words: str | int, device: str | torch.device = "cpu"
) -> SeededNoise | SecureNoise:
    """Make the source of noise for the purpose that ``words`` name.

    Args:
        origin: ``seeded`` or ``secure``, the configuration's ``privacy_noise``.
        seed: Seed of the configuration. Secure noise does not depend on it.
        *words: Run, replica and purpose, e.g. ``"noise"``.
        device: Device of the draws.

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
    """Return a source unchanged, and wrap a generator as seeded noise."""
    return SeededNoise(source) if isinstance(source, torch.Generator) else source
