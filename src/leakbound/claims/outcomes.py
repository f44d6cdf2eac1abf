"""Outcomes of claim tests, and the options that all of these share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from leakbound.claims.selection import SelectionError, require, select
from leakbound.claims.statistics import Tested
from leakbound.config.catalogue import Conditions
from leakbound.config.messages import parse
from leakbound.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Outcome:
    """Result of a claim's test.

    Args:
        effect: Effect size; its meaning is the test's.
        low: Lower end of its 95 % interval; NaN if there is none, as for one replica or replicas that all agree.
        high: Upper end.
        p_value: Two-sided; 0 or 1 for an exact statement; NaN if there are too few replicas to test.
        direction: 1 if the effect goes the claimed way, −1 if the opposite way, 0 if neither.
        replicas: Least number of independent replicas in a group.
        detail: The comparison in words, or why there was none.
        exact: True if the statement holds or fails without any chance.
        smallest_p: Number of replicas to the least p-value that the test could give with so many.
    """

    effect: float
    low: float
    high: float
    p_value: float
    direction: int
    replicas: int
    detail: str
    exact: bool = False
    smallest_p: Callable[[int], float] = lambda replicas: 0.0


class ClaimOptions(Settings):
    """Options of every claim test."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""


@dataclass(frozen=True)
class ClaimTest(Generic[T]):
    """A test with its declared options; called with rows, plain options and a generator."""

    name: str
    settings: type[T]
    run: Callable[[pd.DataFrame, T, np.random.Generator], Outcome]

    def check(self, options: Mapping[str, Any]) -> T:
        """The options, or a ConfigError with every mistake in them."""
        return parse(self.settings, dict(options), f"claim test {self.name}: options")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any], generator: np.random.Generator) -> Outcome:
        """Test one setting's rows.

        Raises:
            ConfigError: If an option is wrong.
            SelectionError: If a condition names an unknown column or chooses no row.
        """
        return self.run(rows, self.check(options), generator)


def outcome(
    sign: int,
    tested: Tested,
    effect: float,
    interval: tuple[float, float],
    replicas: int,
    detail: str,
    smallest_p: Callable[[int], float],
) -> Outcome:
    """Outcome of a test on replicas; ``sign`` is the direction that the claim states."""
    direction = sign * tested.direction
    return Outcome(effect, *interval, tested.p_value, direction, replicas, detail, smallest_p=smallest_p)


def undecidable(rows: pd.DataFrame, reason: str) -> Outcome:
    """Outcome of a test that could not be made, and why."""
    replicas = int(rows["replica"].nunique()) if "replica" in rows.columns else 1
    return Outcome(math.nan, math.nan, math.nan, math.nan, 0, replicas, reason)


def exact_outcome(effect: float, holds: bool, detail: str) -> Outcome:
    """Outcome of a statement without chance."""
    p_value, direction = (0.0, 1) if holds else (1.0, -1)
    return Outcome(effect, math.nan, math.nan, p_value, direction, 1, f"exact: {detail}", exact=True)


def exact_steps(steps: Float[np.ndarray, " steps"], compared: str) -> Outcome:
    """Outcome of a statement that holds where every step is positive."""
    holds = bool((steps > 0).all())
    result = "all as claimed" if holds else f"{int((steps <= 0).sum())} against the claim"
    return exact_outcome(float(steps.min()) if len(steps) else math.nan, holds, f"{compared}, {result}")


def both_quantities(rows: pd.DataFrame, x: Conditions, y: Conditions) -> pd.DataFrame:
    """One row per run and replica that has both quantities, as columns x and y.

    Raises:
        SelectionError: If the conditions of one choose several rows of a replica.
    """
    require(rows, "run", "replica", "value")
    first, second = select(rows, x), select(rows, y)
    for chosen, name in ((first, "x"), (second, "y")):
        if chosen.duplicated(["run", "replica"]).any():
            raise SelectionError(f"the conditions of {name} choose several rows of one replica: choose one")
    return first.rename(columns={"value": "x"}).merge(
        second[["run", "replica", "value"]].rename(columns={"value": "y"}), on=["run", "replica"]
    )
