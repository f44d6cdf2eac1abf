"""Attackers that are answered together get what each would get alone."""

from collections.abc import Generator, Sequence

import pytest
import torch

from leakbound_lab.attacks.scheduling import by_kind, side_by_side


def walker(start: int, searches: int) -> Generator[int, int, list[int]]:
    """Ask for the square of a number, and go on from what was found."""
    seen = [start]
    for _ in range(searches):
        seen.append((yield seen[-1]))
    return seen


def squares(numbers: Sequence[int]) -> list[int]:
    return [number**2 for number in numbers]


def test_each_attacker_gets_its_own_answers_however_many_searches_it_needs():
    together: list[list[int]] = []

    def search(numbers: Sequence[int]) -> list[int]:
        together.append(list(numbers))
        return squares(numbers)

    found = side_by_side([walker(2, 2), walker(3, 0), walker(5, 1)], search)
    assert found == [[2, 4, 16], [3], [5, 25]]
    assert together == [[2, 5], [4]]
    assert side_by_side([], search) == []


def test_searches_that_memory_does_not_hold_are_done_by_halves():
    done: list[list[int]] = []

    def search(numbers: Sequence[int], held: int = 2) -> list[int]:
        if len(numbers) > held:
            raise torch.OutOfMemoryError
        done.append(list(numbers))
        return squares(numbers)

    assert by_kind([1, 2, 3, 4, 6, 8, 9], lambda number: number % 2, search) == [1, 4, 9, 16, 36, 64, 81]
    assert done == [[1], [3, 9], [2, 4], [6, 8]]
    with pytest.raises(torch.OutOfMemoryError):
        by_kind([1, 2, 3], lambda number: 0, lambda numbers: search(numbers, 0))
    with pytest.raises(KeyError):  # no smaller stack helps
        by_kind([1, 2, 3], lambda number: 0, lambda numbers: [{}[number] for number in numbers])
