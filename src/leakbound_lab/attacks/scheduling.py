"""Attackers of several replicas together: a GPU gets all their searches at once, as memory allows."""

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, TypeVar

import torch

logger = logging.getLogger("leakbound")

Search = TypeVar("Search")
Found = TypeVar("Found")
Result = TypeVar("Result")


def side_by_side(
    attackers: Sequence[Generator[Search, Found, Result]],
    search: Callable[[Sequence[Search]], Sequence[Found]],
) -> list[Result]:
    """Advance attackers from search to search, so that searches which wait at a time are done together.

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
        findings = search(list(waiting.values())) if waiting else ()
        answers = dict(zip(waiting, findings, strict=True))
    return [results[place] for place in range(len(attackers))]


def by_kind(
    searches: Sequence[Search],
    kind: Callable[[Search], Hashable],
    search: Callable[[list[Search]], Sequence[Found]],
    at_once: int | None = None,
    errors: type[Exception] = torch.OutOfMemoryError,
) -> list[Found]:
    """Do searches of one kind together, and return their findings in the order of the searches.

    Args:
        searches: Of any kinds. They can be done again.
        kind: Equal for searches that can be done together.
        search: Does searches of one kind, in their order.
        at_once: Searches that are done together at most, or None for no limit.
        errors: After one of these, half as many searches are done together.

    Raises:
        Exception: One of ``errors``, of a single search.
    """
    alike: dict[Hashable, list[int]] = {}
    for place, waiting in enumerate(searches):
        alike.setdefault(kind(waiting), []).append(place)
    findings: dict[int, Found] = {}

    def solve(places: Sequence[int]) -> None:
        """Do some searches together."""
        findings.update(zip(places, search([searches[place] for place in places]), strict=True))

    for places in alike.values():
        in_parts(places, at_once or len(places), solve, errors)
    return [findings[place] for place in range(len(searches))]


def in_parts(
    places: Sequence[int],
    at_once: int,
    solve: Callable[[Sequence[int]], None],
    errors: type[Exception] = torch.OutOfMemoryError,
) -> None:
    """Solve problems part by part or, where that fails, those of each half of a part.

    Args:
        places: Numbers of the problems.
        at_once: Problems of a part at most.
        solve: Solves some of them. After a failure it is called again for fewer.
        errors: Failures that smaller parts may avoid.

    Raises:
        Exception: One of ``errors``, of a single problem.
    """
    for first in range(0, len(places), at_once):
        part = places[first : first + at_once]
        middle = len(part) // 2
        try:
            solve(part)
            continue
        except errors as error:
            if not middle:
                raise
            logger.info("A stack of an attack is divided into two: %s", error)
        for half in (part[:middle], part[middle:]):  # only now, as the error holds what the stack held
            in_parts(half, len(half), solve, errors)
