"""Attackers of several replicas together: a GPU gets all their searches at once, as memory allows."""

import logging
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, TypeVar

import torch

logger = logging.getLogger("leakbound")

Search = TypeVar("Search")
Found = TypeVar("Found")
Result = TypeVar("Result")
Whole = TypeVar("Whole")


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

    def solve(places: list[int]) -> None:
        """Do some searches together."""
        findings.update(zip(places, search([searches[place] for place in places]), strict=True))

    for places in alike.values():
        for first in range(0, len(places), at_once or len(places)):
            in_halves(places[first : first + at_once] if at_once else places, solve, divided, errors)
    return [findings[place] for place in range(len(searches))]


def in_halves(
    whole: Whole,
    solve: Callable[[Whole], None],
    halves: Callable[[Whole], Sequence[Whole]],
    errors: type[Exception] = torch.OutOfMemoryError,
) -> None:
    """Solve problems at once or, where that fails, those of each half.

    Args:
        whole: The problems.
        solve: Solves some, may be called again for problems that it failed at.
        halves: Divides some, or nothing where they cannot be divided.
        errors: Failures that smaller stacks may be spared.

    Raises:
        Exception: One of ``errors``, of what cannot be divided.
    """
    try:
        solve(whole)
        return
    except errors as error:
        parts = halves(whole)
        if not parts:
            raise
        logger.info("A stack of an attack is divided into two: %s", error)
    for part in parts:  # only now, as the error holds what the stack held
        in_halves(part, solve, halves, errors)


def divided(places: list[int]) -> Sequence[list[int]]:
    """Divide a list into halves."""
    middle = len(places) // 2
    return (places[:middle], places[middle:]) if middle else ()
