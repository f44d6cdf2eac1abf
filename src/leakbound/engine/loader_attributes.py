"""Attributes that a protected loader has in common with the loader that it was made from, for frameworks that ask."""

from __future__ import annotations

from typing import Any

from torch.utils.data import DataLoader


class Shown:
    """An attribute of the loader behind a protected one, which can be read and not set.

    Args:
        meaning: One sentence for help.
    """

    def __init__(self, meaning: str) -> None:
        self.__doc__ = meaning

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loader: Any, owner: type | None = None) -> Any:
        return self if loader is None else getattr(loader._loader, self._name)

    def __set__(self, loader: Any, value: Any) -> None:
        raise AttributeError(
            f"{self._name} is that of the loader that was protected: set it there, before protect"
        )


class LoaderAttributes:
    """The attributes of a ``DataLoader`` besides its dataset, batches and samplers."""

    _loader: DataLoader[Any]

    collate_fn = Shown("Makes a batch of noisy records.")
    drop_last = Shown("Whether an incomplete last batch is left out.")
    generator = Shown("Random numbers of the sampler.")
    in_order = Shown("Whether batches come in the order of the sampler.")
    multiprocessing_context = Shown("How workers are started.")
    num_workers = Shown("Processes that fetch records.")
    persistent_workers = Shown("Whether workers stay from epoch to epoch.")
    pin_memory = Shown("Whether noisy batches are copied to pinned memory.")
    pin_memory_device = Shown("Device of pinned memory.")
    prefetch_factor = Shown("Batches that a worker fetches ahead; they are counted when they are given out.")
    timeout = Shown("Seconds to wait for a worker.")
    worker_init_fn = Shown("Called in each worker at its start.")
