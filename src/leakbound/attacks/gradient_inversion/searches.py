"""Searches of attackers on gradients: one by one on a CPU, those of several replicas in one stack on a GPU.

An attacker is a generator that yields a search and is sent what it found. A stack launches as many kernels as
one search, however many replicas wait. Each gets what it would get alone, up to rounding. On a CPU a stack
would be slower, and the bytes stay those of each replica alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from leakbound.attacks.scheduling import by_kind, in_halves, side_by_side
from leakbound.models import memory

Result = TypeVar("Result")


@runtime_checkable
class Search(Protocol):
    """Search that an attacker waits for."""

    @property
    def kind(self) -> Hashable:
        """Value that is equal for searches that one stack can hold."""

    def alone(self) -> Any:
        """Return the findings of this search."""

    def together(self, others: Sequence[Any]) -> list[Any]:
        """Return the findings of this search and of others of its kind."""


Attacker: TypeAlias = Generator[Search, Any, Result]
"""Yields searches, is sent what each found, and returns a result."""


def attacked(
    attackers: Sequence[Attacker[Result]],
    device: str | torch.device,
    model: Callable[[], nn.Module],
    uploads: int,
) -> list[Result]:
    """Return the results of attackers: one by one on a CPU, several at once on a GPU.

    Those at once fill at most half of the free memory.

    Args:
        attackers: Attackers, none of which has begun.
        device: Where they search.
        model: Makes a network like those that they attack.
        uploads: Number of gradients that each of them holds.
    """
    most = memory.SEARCHES_SIDE_BY_SIDE.on(device)
    if torch.device(device).type == "cuda":
        held = 4 * uploads * sum(parameter.numel() for parameter in model().parameters())
        most = max(1, min(most, memory.free_bytes(device) // (2 * held)))
    results: list[Result] = []
    for first in range(0, len(attackers), most):
        results += side_by_side(attackers[first : first + most], answered)
    return results


def alone(attacker: Attacker[Result]) -> Result:
    """Return the result of one attacker."""
    return side_by_side([attacker], answered)[0]


def answered(searches: Sequence[Search]) -> list[Any]:
    """Do the searches that are waited for at a time, those of one kind in one stack."""
    return by_kind(
        searches,
        lambda search: search.kind,
        lambda alike: alike[0].together(alike[1:]) if len(alike) > 1 else [alike[0].alone()],
    )


class Part(NamedTuple):
    """Problems of some searches that are solved at once, equally many of each.

    Attributes:
        searches: Places of the searches.
        first: Place of the first problem of each.
        counts: Number of problems of each.
        rows: Places of the problems (n) of each. A search that has fewer than others repeats its own.
    """

    searches: list[int]
    first: int
    counts: list[int]
    rows: list[Int[Tensor, " n"]]

    def put(self, rows: Any, targets: Sequence[Any]) -> None:
        """Write rows, ordered as :func:`interleaved` orders them, to the places of each search's problems.

        Rows and targets, (n, ...) of each search, are tensors or arrays.
        """
        side = rows.reshape(-1, len(self.searches), *rows.shape[1:])
        for column, (search, count) in enumerate(zip(self.searches, self.counts, strict=True)):
            targets[search][self.first : self.first + count] = side[:count, column]

    def halves(self) -> Sequence[Part]:
        """Divide the problems of each search, or the searches, into halves. Nothing divides one problem."""
        if (middle := len(self.rows[0]) // 2) > 0:
            above = [place for place, count in enumerate(self.counts) if count > middle]
            counts = [min(count, middle) for count in self.counts]
            return Part(self.searches, self.first, counts, [places[:middle] for places in self.rows]), Part(
                [self.searches[place] for place in above],
                self.first + middle,
                [self.counts[place] - middle for place in above],
                [self.rows[place][middle:] for place in above],
            )
        if (middle := len(self.searches) // 2) > 0:
            return tuple(
                Part(self.searches[half], self.first, self.counts[half], self.rows[half])
                for half in (slice(middle), slice(middle, None))
            )
        return ()


def interleaved(values: Iterable[Tensor]) -> Tensor:
    """Interleave the values of searches, (n, ...) of each: the first of all, the second of all, and so on."""
    return torch.stack(list(values), dim=1).flatten(0, 1)


def in_parts(
    counts: Sequence[int], at_once: int, device: str | torch.device, solve: Callable[[Part], None]
) -> None:
    """Solve the problems of searches, at most ``at_once`` at a time, and fewer where memory does not hold them.

    Args:
        counts: Number of problems of each search.
        at_once: At least 1.
        device: Device of the problems.
        solve: Solves some of the problems.

    Raises:
        torch.OutOfMemoryError: If memory does not hold one.
    """
    for part in parts(counts, at_once, device):
        in_halves(part, solve, Part.halves)


def parts(counts: Sequence[int], at_once: int, device: str | torch.device) -> Iterator[Part]:
    """Divide the problems of searches so that at most ``at_once`` are solved at a time.

    Args:
        counts: Number of problems of each search.
        at_once: At least 1.
        device: Device of the problems.
    """
    for begin in range(0, len(counts), at_once):
        group = range(begin, min(begin + at_once, len(counts)))
        size = at_once // len(group)
        most = max(counts[place] for place in group)
        for first in range(0, most, size):
            length = min(size, most - first)
            left = {place: min(counts[place] - first, length) for place in group if counts[place] > first}
            rows = [first + torch.arange(length, device=device) % count for count in left.values()]
            yield Part(list(left), first, list(left.values()), rows)
