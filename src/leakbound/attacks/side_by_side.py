"""Attackers of several replicas side by side: a GPU gets the searches of all of them at once."""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, TypeVar

Search = TypeVar("Search")
Found = TypeVar("Found")
Result = TypeVar("Result")


def side_by_side(
    attackers: Sequence[Generator[Search, Found, Result]], search: Callable[[Sequence[Search]], Sequence[Found]]
) -> list[Result]:
    """Advance attackers from search to search, so that those which wait at a time are answered together.

    Args:
        attackers: Each yields the searches that it needs, takes what they found, and returns its result.
        search: Does searches of different attackers, in their order.

    Returns:
        Results in the order of the attackers.

    Raises:
        ValueError: If there are not as many findings as searches.
    """
    results: dict[int, Result] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(attackers)))
    while answers:
        waiting: dict[int, Search] = {}
        for place, answer in answers.items():
            try:
                waiting[place] = attackers[place].send(answer)  # None begins
            except StopIteration as end:
                results[place] = end.value
        found = search(list(waiting.values())) if waiting else ()
        answers = dict(zip(waiting, found, strict=True))
    return [results[place] for place in range(len(attackers))]


def by_kind(
    searches: Sequence[Search],
    kind: Callable[[Search], Hashable],
    search: Callable[[list[Search]], Sequence[Found]],
    at_once: int | None = None,
) -> list[Found]:
    """Findings of searches, in their order, when those of one kind are done together.

    Args:
        searches: Of any kinds.
        kind: Equal for searches that can be done together.
        search: Does searches of one kind, in their order.
        at_once: Searches that are done together at most; None for no limit.
    """
    alike: dict[Hashable, list[int]] = {}
    for place, one in enumerate(searches):
        alike.setdefault(kind(one), []).append(place)
    found: dict[int, Found] = {}
    for places in alike.values():
        for first in range(0, len(places), at_once or len(places)):
            some = places[first : first + at_once] if at_once else places
            found |= zip(some, search([searches[place] for place in some]), strict=True)
    return [found[place] for place in range(len(searches))]
