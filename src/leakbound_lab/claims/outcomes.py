"""Numbers that claim tests compute in each block, and the options that all tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from leakbound_lab.claims.selection import EmptySelectionError
from leakbound_lab.config.catalogue import Conditions
from leakbound_lab.config.messages import parse
from leakbound_lab.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound="ClaimOptions")
ROUNDING = 1e-9
"""Largest relative difference between two numbers that counts as rounding. Sums of thousands of terms err far less."""
Rule = Literal["beyond", "within", "at most"]
"""Kind of a claim: that an effect exists, is at most delta either way, or is at most delta upward."""


@dataclass(frozen=True)
class Exact:
    """A statement without chance, which holds or fails.

    Args:
        effect: Number that decides the statement. Its meaning depends on the test.
        holds: True if the statement holds.
        detail: The comparison in words.
    """

    effect: float
    holds: bool
    detail: str


def exactly(
    gaps: Float[np.ndarray, " k"], slack: Float[np.ndarray, " k"], of: str, *, nothing: bool = False
) -> Exact:
    """Decide comparisons without chance. None may contradict the claim by more than rounding.

    Args:
        gaps: Differences in the claimed direction.
        slack: Largest rounding error of each difference, in the same unit.
        of: What was compared, in words.
        nothing: True if there is no difference at all. A claim that there is one then fails.
    """
    against = len(gaps) if nothing else int((gaps < -slack).sum())
    equal = int((np.abs(gaps) <= slack).sum())
    result = f"{against} against the claim" if against else "all as claimed"
    rounded = f", {equal} equal up to rounding" if equal and not nothing else ""
    return Exact(float(gaps.min()), not against, f"{of}, {result}{rounded}")


@dataclass(frozen=True)
class Blocks:
    """Numbers of a test, with one row for each block.

    A block is one problem: a replica of one dataset and network, which all compared runs share.

    Args:
        effects: One column for each comparison, in the metric's unit. All comparisons must hold. Only fronts
            have several.
        claimed: 1 if effects are claimed to be positive, -1 if negative.
        detail: The comparison in words.
        scores: Numbers whose signs are flipped instead of those of the effects. None for the effects
            themselves.
        steps: Steps between neighbours along a trend, in the claimed direction. None of them may fall by
            delta.
        widths: Name of each step to the distance between its ends, in doublings or steps as for slopes.
        levels: Number of values along a trend that Page's statistic ranks. 0 if nothing is ranked.
        rule: Kind of the claim about the effect.
        per: Text after the unit of the effect, e.g. `` per doubling``.
        left_out: Number of blocks left out because they lack a value that other blocks of their setting have.
        note: What only this setting has, in words.
    """

    effects: pd.DataFrame
    claimed: int
    detail: str
    scores: pd.DataFrame | None = None
    steps: pd.DataFrame | None = None
    widths: Mapping[str, float] = field(default_factory=dict)
    levels: int = 0
    rule: Rule = "beyond"
    per: str = ""
    left_out: int = 0
    note: str = ""

    def changed(self, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Blocks:
        """Return the blocks with a function applied to each of their tables.

        Args:
            change: Function of a table.
        """
        tables = {"effects": self.effects, "scores": self.scores, "steps": self.steps}
        return replace(self, **{name: change(table) for name, table in tables.items() if table is not None})

    def scaled(self, reference: pd.Series[float]) -> Blocks:
        """Return the blocks with effects and steps divided by a number for each of them.

        Args:
            reference: Replica to the divisor. Blocks without one are left out.
        """
        shared = self.effects.index.intersection(reference.index)
        effects = self.effects.loc[shared].div(reference[shared], axis=0)
        steps = None if self.steps is None else self.steps.loc[shared].div(reference[shared], axis=0)
        scores = None if self.scores is None else self.scores.loc[shared]  # ranks have no unit
        lost = self.left_out + len(self.effects) - len(effects)
        return replace(self, effects=effects, scores=scores, steps=steps, left_out=lost)


class ClaimOptions(Settings):
    """Options of every claim test."""

    COMPARED: ClassVar[tuple[str, ...]] = ()
    """Options that say what is compared: conditions, lists of conditions, or columns."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""

    def compared(self) -> set[str]:
        """List the columns along which the test compares. Their values do not distinguish blocks."""
        columns: set[str] = set()
        for name in self.COMPARED:
            value = getattr(self, name)
            for item in value if isinstance(value, list | tuple) else [value]:
                columns |= set(item if isinstance(item, Mapping) else () if item is None else [item])
        return columns


@dataclass(frozen=True)
class ClaimTest(Generic[T]):
    """A test with its declared options.

    Args:
        name: Name of the test in the catalogue.
        settings: Model of its options.
        run: Function of the rows of one dataset and network, and checked options.
    """

    name: str
    settings: type[T]
    run: Callable[[pd.DataFrame, T], Blocks | Exact]

    def check(self, options: Mapping[str, Any]) -> T:
        """Check options.

        Args:
            options: Plain values by the name of the option.

        Raises:
            ConfigError: With every mistake in the options.
        """
        return parse(self.settings, dict(options), f"claim test {self.name}: options")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any]) -> Blocks | Exact:
        """Compute the effects of one setting's blocks, one for each replica.

        Args:
            rows: Rows of one dataset and network.
            options: Plain values by the name of the option.

        Raises:
            ConfigError: If an option is wrong.
            SelectionError: If a condition names an unknown column or chooses no row.
        """
        return self.run(rows, self.check(options))


def complete(tables: list[pd.DataFrame]) -> tuple[list[pd.DataFrame], int]:
    """Keep the replicas that have every value, and count the others.

    Args:
        tables: Tables whose index is the replica.

    Returns:
        The tables without incomplete replicas, and the number of incomplete replicas.

    Raises:
        EmptySelectionError: If no replica has all values.
    """
    import pandas as pd

    joined = pd.concat(tables, axis=1, keys=range(len(tables)))
    full = joined.dropna()
    if full.empty:
        raise EmptySelectionError("no replica has all values that are compared")
    return [full[place] for place in range(len(tables))], len(joined) - len(full)
