"""Noise that belongs to a record and its use, whoever draws it, in which batch, and after any interruption.

Philox is a counter-based generator: a key and a 256-bit counter determine its numbers. The key comes from the
seed, and the counter holds a word of the record's digest and its use. So no state has to be kept, and no two
uses share a stream.
"""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.directions import Directions
from leakbound.channels.sampling import ChannelSampler
from leakbound.engine.book import Book
from leakbound.engine.counting import Counted
from leakbound.engine.ranks import together
from leakbound.randomness.seeding import derive_seed
from leakbound.randomness.sources import NoiseSource, SecureNoise


class CentredSampler:
    """Add noise to records after subtracting a public mean in float64, so that none is rounded before.

    Float32 numbers near 2³⁰ are 128 apart. Rounding to them is no noise, and differs from record to record.

    Args:
        channel: A calibrated channel.
        mean: (d,) mean of the records that it was calibrated to.
        on_grid: Release on a grid, as secure noise needs it. The mean is rounded to its points.
    """

    def __init__(self, channel: GaussianChannel, mean: Float[np.ndarray, " d"], *, on_grid: bool) -> None:
        plain = ChannelSampler(channel, (1, 1, channel.dimension), on_grid=on_grid)
        center = torch.from_numpy(mean)
        if plain.spacing is not None:
            spacing = torch.where(plain.spacing > 0, plain.spacing, 1.0)
            center = torch.where(plain.spacing > 0, torch.round(center / spacing) * spacing, center)
        self._mean = center
        self._type = torch.float64 if on_grid else torch.float32
        self._sampler = plain
        if channel.mean is not None:
            shifted = replace(channel, mean=channel.mean - center.numpy())
            self._sampler = ChannelSampler(shifted, plain.image_shape, on_grid=on_grid)

    def apply(
        self, clean: Float[Tensor, "rows *ones d"], source: NoiseSource
    ) -> Float[Tensor, "rows *ones d"]:
        """Use the channel once for each row, float64 in and out."""
        centred = (clean - self._mean).to(self._type)
        noisy = self._sampler.apply(centred.reshape(len(clean), 1, 1, len(self._mean)), source)
        return noisy.reshape(clean.shape).double() + self._mean


class BatchNoise:
    """Add noise to the batches of an engine: fresh at each use, or frozen in one copy of each record.

    Args:
        channel: A calibrated channel.
        mean: (d,) mean of the records that it was calibrated to.
        noise: ``fresh`` or ``frozen``.
        seed: Seed of noise that can be repeated, None for secure noise.

    Attributes:
        name: Name of the seed and the channel.
    """

    def __init__(
        self, channel: GaussianChannel, mean: Float[np.ndarray, " d"], noise: str, seed: int | None
    ) -> None:
        self._sampler = CentredSampler(channel, mean, on_grid=seed is None)
        self._noise, self._seed = noise, seed
        self.name = "secure" if seed is None else name_of(seed, channel)

    def apply(
        self, clean: Float[Tensor, "rows 1 1 d"], counted: Counted, book: Book
    ) -> Float[Tensor, "rows 1 1 d"]:
        """Add noise to the inputs of this rank's part of a batch, and return float32.

        Args:
            clean: Inputs, float64.
            counted: Batch of all ranks, whose uses are counted.
            book: Digests of the records, and their frozen copies.
        """
        if self._seed is not None:
            digests = [book.digests[row][:8] for row in counted.rows[counted.own]]
            words = np.frombuffer(b"".join(digests), np.uint64)
            return self._sampler.apply(
                clean, RecordNoise(self._seed, self.name, words, counted.numbers)
            ).float()
        source: NoiseSource = SecureNoise()
        if self._noise == "fresh":
            return self._sampler.apply(clean, source).float()
        begin = counted.own.start
        mine = counted.new[(counted.new >= begin) & (counted.new < counted.own.stop)]
        copies, _ = together(
            lambda: self._sampler.apply(clean[torch.from_numpy(mine - begin)], source).float()
        )
        book.keep(counted.rows[counted.new].tolist(), torch.cat(copies))
        return book.frozen(counted.rows[counted.own].tolist()) if len(clean) else clean.float()


class RecordNoise:
    """Draw seeded noise for one batch, a row for each record, from seed, name, record and use alone.

    Whoever knows the seed can subtract the noise.

    Args:
        seed: Seed of the engine.
        name: Name of the purpose.
        records: A word that stands for each record.
        uses: Number of the use, from 0, for each row.
    """

    secure = False

    def __init__(
        self, seed: int, name: str, records: Integer[np.ndarray, " rows"], uses: Integer[np.ndarray, " rows"]
    ) -> None:
        key = np.array([derive_seed(seed, name, "noise", half) for half in range(2)], dtype=np.uint64)
        self._philox = np.random.Philox(key=key)
        self._start = self._philox.state
        self._normal = np.random.Generator(self._philox).standard_normal
        self._rows = list(zip(uses.tolist(), records.tolist(), strict=True))
        self._calls = 0

    def normal(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """Draw standard normal numbers (rows, width).

        Raises:
            ValueError: If another number of rows is asked for.
        """
        rows, width = shape
        if rows != len(self._rows):
            raise ValueError(f"rows = {rows}: this noise is for {len(self._rows)} records")
        kind = np.float32 if dtype == torch.float32 else np.float64
        drawn = np.empty((rows, width), kind)
        for row, (use, record) in zip(drawn, self._rows, strict=True):
            self._start["state"]["counter"][:] = (0, self._calls, use, record)
            self._philox.state = self._start
            self._normal(dtype=kind, out=row)
        self._calls += 1
        return torch.from_numpy(drawn).to(dtype)

    def uniform(self, count: int) -> Float[Tensor, " count"]:
        """Refuse to draw uniform numbers, which no noise of records needs.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("noise of records is normal")

    def state(self) -> None:
        """Return None, as record and use determine the noise."""
        return

    def restore(self, state: Tensor | None) -> None:
        """Do nothing, as there is no state."""


def name_of(seed: int, channel: GaussianChannel) -> str:
    """Name a seed and a channel, as the same draw on two scales would reveal the record."""
    axes = channel.basis.weights if isinstance(channel.basis, Directions) else channel.basis
    parts = (np.array([seed]), channel.variances, channel.gain, channel.mean, axes)
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(b"-" if part is None else np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
