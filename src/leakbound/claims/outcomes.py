"""What a claim's test finds, and the groups of rows that tests are made on."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from jaxtyping import Float

from leakbound.claims.options import parse
from leakbound.claims.selection import SelectionError, select
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings
from leakbound.registry import nearest

T = TypeVar("T", bound=Settings)


@dataclass(frozen=True)
class Outcome:
    """What a test found.

    Args:
        effect: Effect size; its meaning is the test's.
        low: Lower end of its 95 % interval; NaN if there is none, as for one replica or replicas that all agree.
        high: Upper end.
        p_value: Two-sided; 0 or 1 for an exact statement; NaN if there are too few replicas to test.
        direction: 1 if the effect goes the claimed way, −1 if the opposite way, 0 if neither.
        replicas: Least number of independent replicas in a group.
        detail: What was compared, or why nothing could be.
        exact: Whether the statement holds or fails without any chance.
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


@dataclass(frozen=True)
class ClaimTest(Generic[T]):
    """A test with its declared options; called with rows, plain options and a generator."""

    name: str
    settings: type[T]
    run: Callable[[pd.DataFrame, T, np.random.Generator], Outcome]

    def check(self, options: Mapping[str, Any]) -> T:
        """The options, or an OptionsError with every mistake in them."""
        return parse(self.settings, options, f"claim test {self.name}")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any], generator: np.random.Generator) -> Outcome:
        """Test one setting's rows.

        Raises:
            OptionsError: If an option is wrong.
            SelectionError: If a condition names an unknown column or chooses no row.
        """
        return self.run(rows, self.check(options), generator)


def require(rows: pd.DataFrame, columns: Iterable[str]) -> None:
    """Refuse a table that lacks one of the columns a test needs.

    Raises:
        SelectionError: Naming the column and the nearest one that there is.
    """
    for column in columns:
        if column not in rows.columns:
            known = nearest(column, [str(name) for name in rows.columns])
            raise SelectionError(f"a claim test needs the column {column!r}; {known}")


def undecidable(rows: pd.DataFrame, reason: str) -> Outcome:
    """Outcome of a test that could not be made, and why."""
    replicas = int(rows["replica"].nunique()) if "replica" in rows.columns else 1
    return Outcome(math.nan, math.nan, math.nan, math.nan, 0, replicas, reason)


def exact_outcome(steps: Float[np.ndarray, " steps"], what: str) -> Outcome:
    """Outcome of a statement without chance: it holds where every step is positive."""
    holds = bool((steps > 0).all())
    detail = f"exact: {what}, " + ("all as claimed" if holds else f"{int((steps <= 0).sum())} against the claim")
    effect = float(steps.min()) if len(steps) else math.nan
    return Outcome(effect, math.nan, math.nan, 0.0 if holds else 1.0, 1 if holds else -1, 1, detail, exact=True)


def split(rows: pd.DataFrame, columns: Iterable[str]) -> dict[tuple[Hashable, ...], pd.DataFrame]:
    """Rows by their values in ``columns``, a missing value being one like any other.

    Raises:
        SelectionError: If the table lacks one of them.
    """
    columns = list(columns)
    require(rows, columns)
    if not columns:
        return {(): rows}
    groups = rows.groupby(columns, sort=True, dropna=False)
    return {tuple(None if pd.isna(part) else part for part in key): group for key, group in groups}


def both_quantities(rows: pd.DataFrame, x: Conditions, y: Conditions) -> pd.DataFrame:
    """One row per run and replica that has both quantities, as columns x and y.

    Raises:
        SelectionError: If the conditions of one choose several rows of a replica.
    """
    require(rows, ("run", "replica", "value"))
    first, second = select(rows, x), select(rows, y)
    for chosen, name in ((first, "x"), (second, "y")):
        if chosen.duplicated(["run", "replica"]).any():
            raise SelectionError(f"the conditions of {name} choose several rows of one replica: choose one")
    return first.rename(columns={"value": "x"}).merge(
        second[["run", "replica", "value"]].rename(columns={"value": "y"}), on=["run", "replica"]
    )
