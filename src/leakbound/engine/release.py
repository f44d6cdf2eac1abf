"""Release of records: noise of a record and its use, one verdict of all ranks, and loaders behind a channel.

Philox is a counter-based generator: a key and a 256-bit counter determine its numbers. The key comes from the
seed, and the counter holds a word of the record's digest and its use. So no state has to be kept, and no two
uses share a stream, whoever draws them, in which batch, and after any interruption.

Workers of loaders fetch clean records with their positions. Noise, counting and refusals happen in the
process that iterates, so that a record which a worker fetched and nobody took is not counted. Whatever works
on several records, including the loader's ``collate_fn``, comes after the channel and does not weaken the
guarantee.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float, Int, Integer, Num
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from leakbound.channels.channel import GaussianChannel
from leakbound.channels.directions import Directions
from leakbound.channels.sampling import ChannelSampler
from leakbound.engine.records import Key, inputs_of, with_input
from leakbound.engine.refusals import GuaranteeError
from leakbound.randomness.seeding import derive_seed
from leakbound.randomness.sources import NoiseSource, SecureNoise

T = TypeVar("T")
_groups: dict[Any, Any] = {}  # groups that send objects without a GPU, by the default group
_LOADER_OPTIONS = (
    *("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
    *("persistent_workers", "in_order"),
)
_READABLE = {
    *("batch_sampler", "batch_size", "collate_fn", "drop_last", "pin_memory", "pin_memory_device", "sampler"),
    *_LOADER_OPTIONS,
}
ReleaseBatch = Callable[[list[int], Tensor | list[Tensor], list[Any]], list[Any]]
"""Counts the uses of a batch and returns its records with noisy inputs, or refuses all of it.

It takes the places of the records in the dataset, their clean inputs, and the records without these.
"""


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

    def apply(self, clean: Num[Tensor, "rows *ones d"], source: NoiseSource) -> Float[Tensor, "rows *ones d"]:
        """Use the channel once for each row, of numbers of any type. Returns float64."""
        centred = (clean - self._mean).to(self._type)
        noisy = self._sampler.apply(centred.reshape(len(clean), 1, 1, len(self._mean)), source)
        return noisy.reshape(clean.shape) + self._mean  # in float64


@dataclass(frozen=True)
class Batch:
    """Joint batch of all ranks, whose uses are counted.

    Attributes:
        records: (joint,) word of each record, in the order of ranks.
        digests: Keyed digest of each.
        of_rank: Part of them that is this rank's.
        new: Places of records that get a frozen copy, each once.
        numbers: (joint,) number of each use, from 0, for seeded noise. Always 0 for frozen noise.
        done: Whether no rank has more batches.
    """

    records: Int[np.ndarray, " joint"]
    digests: list[bytes]
    of_rank: slice
    new: Int[np.ndarray, " new"]
    numbers: Int[np.ndarray, " joint"]
    done: bool


class BatchNoise:
    """Add noise to the batches of an engine: fresh at each use, or frozen in one copy of each record.

    Args:
        channel: A calibrated channel.
        mean: (d,) mean of the records that it was calibrated to.
        noise: ``fresh`` or ``frozen``.
        seed: Seed of noise that can be repeated, None for secure noise.

    Attributes:
        name: Name of the seed and the channel, None for secure noise.
    """

    def __init__(
        self, channel: GaussianChannel, mean: Float[np.ndarray, " d"], noise: str, seed: int | None
    ) -> None:
        self._sampler = CentredSampler(channel, mean, on_grid=seed is None)
        self._noise = noise
        self._seed = seed
        self.name = None if seed is None else name_of(seed, channel)

    def apply(
        self, clean: Num[Tensor, "rows 1 1 d"], batch: Batch, copies: dict[int, Tensor]
    ) -> Float[Tensor, "rows 1 1 d"]:
        """Add noise to the inputs of this rank's part of a batch, and return float32.

        Args:
            clean: Inputs, of any type.
            batch: Batch of all ranks, whose uses are counted.
            copies: Frozen copies by record, to which new ones are added.
        """
        records = batch.records[batch.of_rank]
        if self._seed is not None and self.name is not None:
            seeded = RecordNoise(self._seed, self.name, records.view(np.uint64), batch.numbers[batch.of_rank])
            return self._sampler.apply(clean, seeded).float()
        source: NoiseSource = SecureNoise()
        if self._noise == "fresh":
            return self._sampler.apply(clean, source).float()
        # Each rank draws the copies that its part of the batch needs, and all ranks keep all of them.
        begin = batch.of_rank.start
        new = batch.new
        mine = new[(new >= begin) & (new < batch.of_rank.stop)]
        of_ranks, _ = gather_over_ranks(
            lambda: self._sampler.apply(clean[torch.from_numpy(mine - begin)], source).float()
        )
        copies.update(zip(batch.records[new].tolist(), torch.cat(of_ranks), strict=True))
        return torch.stack([copies[record] for record in records.tolist()]) if len(clean) else clean.float()


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
        normals = np.empty((rows, width), kind)
        for row, (use, record) in zip(normals, self._rows, strict=True):
            self._start["state"]["counter"][:] = (0, self._calls, use, record)
            self._philox.state = self._start
            self._normal(dtype=kind, out=row)
        self._calls += 1
        return torch.from_numpy(normals).to(dtype)

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


def gather_over_ranks(compute: Callable[[], T]) -> tuple[list[T], int]:
    """Gather the results of all ranks, in their order, with the number of this one.

    Raises:
        GuaranteeError: On all ranks, if one is refused, or does not come.
    """
    if not in_ranks():
        return [compute()], 0
    try:
        mine: Any = compute()
    except GuaranteeError as error:
        mine = error
    rank = dist.get_rank()
    results: list[Any] = [None] * dist.get_world_size()
    try:
        dist.all_gather_object(results, mine, group=_group())
    except RuntimeError as error:
        raise GuaranteeError(
            "another rank takes no batch, so uses cannot be counted together: let all ranks iterate over their loaders"
        ) from error
    if isinstance(mine, GuaranteeError):
        raise mine
    for other, result in enumerate(results):
        if isinstance(result, GuaranteeError):
            raise type(result)(f"rank {other}: {result}")
    return results, rank


def in_ranks() -> bool:
    """Return whether this is one of several processes of torch.distributed."""
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _group() -> Any:
    """Return a group over all ranks that sends objects without a GPU."""
    default = dist.group.WORLD
    if dist.get_backend() == "gloo":
        return default
    if default not in _groups:
        _groups[default] = dist.new_group(backend="gloo")
    return _groups[default]


class ProtectedLoader:
    """A loader of noisy records: the same batches, sampler and workers as the one that it was made from.

    It is no ``DataLoader``, so that no framework can rebuild it into one that reads clean records.

    Args:
        loader: Loader with automatic batches.
        release: Path of its records through the channel.
        key: Place of the input in a record.
        end: Called when an epoch ends.

    Attributes:
        dataset: Stand-in that has the length of the dataset and no records.
        batch_sampler: Places of the records of each batch. Like all attributes below, that of the loader that
            was protected, which can be read and not set.
        batch_size: Records of a batch.
        collate_fn: Makes a batch of noisy records.
        drop_last: Whether an incomplete last batch is left out.
        generator: Random numbers of the sampler.
        in_order: Whether batches come in the order of the sampler.
        multiprocessing_context: How workers are started.
        num_workers: Processes that fetch records.
        persistent_workers: Whether workers stay from epoch to epoch.
        pin_memory: Whether noisy batches are copied to pinned memory.
        pin_memory_device: Device of pinned memory.
        prefetch_factor: Batches that a worker fetches ahead, which are counted when they are released.
        sampler: Sampler of the loader, e.g. to set its epoch. Its data_source may hold clean records.
        timeout: Seconds to wait for a worker.
        worker_init_fn: Called in each worker at its start.
    """

    def __init__(
        self, loader: DataLoader[Any], release: ReleaseBatch, key: Key, end: Callable[[], None]
    ) -> None:
        self._loader = loader
        self._release = release
        self.end = end
        self.dataset = Hidden(len(loader.dataset))  # type: ignore[arg-type]
        options = {name: getattr(loader, name) for name in _LOADER_OPTIONS}
        self._clean = DataLoader(
            _Positions(loader.dataset, key),
            batch_sampler=loader.batch_sampler,
            collate_fn=_as_fetched,
            **options,
        )

    def __getattr__(self, name: str) -> Any:
        if name not in _READABLE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _READABLE:
            raise AttributeError(
                f"{name} is that of the loader that was protected: set it there, before protect"
            )
        super().__setattr__(name, value)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over noisy batches, each counted just before it is released.

        Raises:
            BudgetError: If a record of the next batch has no uses left.
            GuaranteeError: If a record is not as the channel was calibrated for.
        """
        pinned = self._loader.pin_memory and torch.cuda.is_available()
        for positions, inputs, rests in self._clean:
            batch = self._loader.collate_fn(self._release(positions, inputs, rests))
            yield pin_memory(batch) if pinned else batch
        self.end()

    def __len__(self) -> int:
        return len(self._clean)


class ProtectedDataset(Dataset[Any]):
    """A map-style dataset of noisy records, for users who build their own loaders. Each reading is a use.

    Args:
        dataset: Clean records.
        release: Path of its records through the channel.
        key: Place of the input in a record.
        engine: Engine that protects them.

    Attributes:
        engine: As given.
    """

    def __init__(self, dataset: Any, release: ReleaseBatch, key: Key, engine: Any) -> None:
        self._clean = _Positions(dataset, key)
        self._release = release
        self.engine = engine

    def __len__(self) -> int:
        return len(self._clean)

    def __getitem__(self, index: int) -> Any:
        """Release one noisy record."""
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """Release the noisy records of a batch, or refuse all of them."""
        if get_worker_info() is not None:
            raise GuaranteeError(
                "a worker's counts of uses are lost with it: protect the DataLoader instead of its dataset, or set "
                "num_workers=0"
            )
        return self._release(*self._clean.__getitems__(indices))


class Hidden:
    """Stand-in that exposes only the length of a dataset."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: object) -> Any:
        """Refuse to hand out a record.

        Raises:
            GuaranteeError: Always.
        """
        raise GuaranteeError("a protected loader hands out no clean records: iterate over the loader")


class _Positions(Dataset[Any]):
    """Batches of records, with positions, inputs and rests separated, in whichever process fetches them."""

    def __init__(self, dataset: Any, key: Key) -> None:
        self._dataset = dataset
        self._key = key
        self._size = len(dataset)

    def __len__(self) -> int:
        return self._size

    def __getitems__(self, indices: Sequence[int]) -> tuple[list[int], Tensor | list[Tensor], list[Any]]:
        """Fetch a batch. Inputs of one form become one tensor, which workers send faster."""
        places = [int(index) for index in indices]
        records = [self._dataset[place] for place in places]
        if max(places, default=0) >= self._size:
            raise GuaranteeError(
                f"record {max(places)} of data that had {self._size} records when they were protected: protect the "
                "loader again after records were appended"
            )
        rests = [with_input(record, self._key, None) for record in records]
        return [place % self._size for place in places], inputs_of(records, self._key), rests


def _as_fetched(batch: T) -> T:
    """Return a batch as it was fetched, in place of a collate function."""
    return batch
