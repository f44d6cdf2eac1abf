"""Loaders and datasets whose records pass the channel before anybody else sees them.

Workers fetch clean records with their positions. Noise, counting and refusals happen in the process that
iterates, so that a record which a worker fetched and nobody took is not counted. Whatever works on several
records, including the loader's ``collate_fn``, comes after the channel and does not weaken the guarantee.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info
from torch.utils.data._utils.pin_memory import pin_memory

from leakbound.engine.places import Places
from leakbound.engine.records import Key, Layout, as_tensor, replaced, taken
from leakbound.engine.refusals import GuaranteeError

_KEPT = (
    *("num_workers", "timeout", "worker_init_fn", "multiprocessing_context", "generator", "prefetch_factor"),
    *("persistent_workers", "in_order"),
)
_READABLE = {
    *("batch_sampler", "batch_size", "collate_fn", "drop_last", "pin_memory", "pin_memory_device", "sampler"),
    *_KEPT,
}
After = Callable[[Tensor], Any] | None
Release = Callable[
    [Int[np.ndarray, " batch"], Int[np.ndarray, " batch"], Tensor, list[Any]], tuple[Tensor, list[Any]]
]


class Gate:
    """The only path of records from a dataset through a channel.

    Args:
        release: Counts the uses of a batch and returns its noisy inputs and what else is released of the
            records, or refuses it. It takes the collection of each record, its index inside it, the clean
            inputs, and the records without these.
        layout: Form that the channel was calibrated for.
        places: Origins of the dataset's records.
        key: Place of the input in a record.
        after: Transform of each noisy input.
    """

    def __init__(self, release: Release, layout: Layout, places: Places, key: Key, after: After) -> None:
        self._release = release
        self._layout = layout
        self._places = places
        self._key = key
        self._after = after

    def __len__(self) -> int:
        return len(self._places.records)

    def released(self, positions: list[int], inputs: Tensor | list[Tensor], rests: list[Any]) -> list[Any]:
        """Release records with noisy inputs, in order: all of them, or none if one is refused."""
        if not positions:  # a Poisson sample may be empty
            inputs = torch.zeros(0, *self._layout.shape)
        if not isinstance(inputs, Tensor):  # they are not of one form
            for single in inputs:
                self._layout.check(single[None])
            inputs = torch.stack(inputs)
        at = np.asarray(positions, dtype=np.int64)
        noisy, rests = self._release(self._places.which[at], self._places.records[at], inputs, rests)
        values = noisy if self._after is None else map(self._after, noisy)
        return [replaced(rest, self._key, value) for rest, value in zip(rests, values, strict=True)]


class ProtectedLoader:
    """A loader of noisy records: the same batches, sampler and workers as the one that it was made from.

    It is no ``DataLoader``, so that no framework can rebuild it into one that reads clean records.

    Args:
        loader: Loader with automatic batches.
        gate: Path of its records through the channel.
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

    def __init__(self, loader: DataLoader[Any], gate: Gate, key: Key, end: Callable[[], None]) -> None:
        self._loader, self._gate, self.end = loader, gate, end
        self.dataset = Hidden(len(gate))
        options = {name: getattr(loader, name) for name in _KEPT}
        self._clean = DataLoader(
            _Positions(loader.dataset, key), batch_sampler=loader.batch_sampler, collate_fn=_apart, **options
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
            batch = self._loader.collate_fn(self._gate.released(positions, inputs, rests))
            yield pin_memory(batch) if pinned else batch
        self.end()

    def __len__(self) -> int:
        return len(self._clean)


class ProtectedDataset(Dataset[Any]):
    """A map-style dataset of noisy records, for users who build their own loaders. Each reading is a use.

    Args:
        dataset: Clean records.
        gate: Path of its records through the channel.
        key: Place of the input in a record.
    """

    def __init__(self, dataset: Any, gate: Gate, key: Key) -> None:
        self._clean, self._gate = _Positions(dataset, key), gate

    def __len__(self) -> int:
        return len(self._gate)

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
        positions, inputs, rests = _apart([self._clean[index] for index in indices])
        return self._gate.released(positions, inputs, rests)


class Hidden:
    """Length of a dataset, and nothing else of it."""

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
    """Records with their positions, input and rest separated, in whichever process fetches them."""

    def __init__(self, dataset: Any, key: Key) -> None:
        self._dataset, self._key, self._size = dataset, key, len(dataset)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> tuple[int, Tensor, Any]:
        record = self._dataset[int(index)]
        return int(index) % self._size, as_tensor(taken(record, self._key)), replaced(record, self._key, None)


def _apart(fetched: list[tuple[int, Tensor, Any]]) -> tuple[list[int], Tensor | list[Tensor], list[Any]]:
    """Separate positions, inputs and rests. Inputs of one form become one tensor, which workers send faster."""
    if not fetched:
        return [], [], []
    positions, inputs, rests = (list(column) for column in zip(*fetched, strict=True))
    alike = len({(value.shape, value.dtype) for value in inputs}) == 1
    return positions, torch.stack(inputs) if alike else inputs, rests
