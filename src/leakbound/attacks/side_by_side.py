"""Attackers of several replicas side by side: a GPU gets the searches of all of them at once."""

from collections.abc import Callable, Generator, Sequence
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
