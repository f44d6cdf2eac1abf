"""Numbers that claim tests find in each block, and the options that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from jaxtyping import Float
from pydantic import Field

from leakbound.claims.selection import EmptySelectionError
from leakbound.config.catalogue import Conditions
from leakbound.config.messages import parse
from leakbound.config.settings import Settings

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T", bound="ClaimOptions")
ROUNDING = 1e-9
"""Part of the larger of two numbers by which rounding may part them, far above that of sums of thousands of terms."""
Rule = Literal["beyond", "within", "at most"]
"""A claim that an effect exists, that it is at most delta either way, or that it is at most delta upward."""


@dataclass(frozen=True)
class Exact:
    """A statement without chance, which holds or fails.

    Args:
        effect: Number that decides it. Its meaning is the test's.
        holds: True if the statement holds.
        detail: The comparison in words.
    """

    effect: float
    holds: bool
    detail: str


def exactly(
    gaps: Float[np.ndarray, " k"], slack: Float[np.ndarray, " k"], of: str, *, nothing: bool = False
) -> Exact:
    """Decide comparisons without chance, of which none may go against the claim by more than rounding.

    Args:
        gaps: Differences in the claimed direction.
        slack: What may be rounding of each.
        of: What was compared, in words.
        nothing: True if there is no difference at all, which a claim of one does not survive.
    """
    against, equal = len(gaps) if nothing else int((gaps < -slack).sum()), int((np.abs(gaps) <= slack).sum())
    result = f"{against} against the claim" if against else "all as claimed"
    rounded = f", {equal} equal up to rounding" if equal and not nothing else ""
    return Exact(float(gaps.min()), not against, f"{of}, {result}{rounded}")


@dataclass(frozen=True)
class Blocks:
    """Numbers of a test, one row a block: what is the same problem for all that is compared.

    Args:
        effects: One column for each comparison, of which all must hold, in the metric's unit. Only fronts
            have several.
        claimed: 1 if effects are claimed to be positive, -1 if negative.
        detail: The comparison in words.
        scores: Numbers whose signs are flipped instead of those of the effects, or None for the effects
            themselves.
        steps: Steps between neighbours along a trend, in the claimed direction. None of them may fall by
            delta.
        widths: Name of each step to how far apart its ends lie, in what slopes are counted by.
        levels: Values along a trend, which Page's statistic ranks, or 0 where nothing is ranked.
        rule: What is claimed of the effect.
        per: What the effect is counted by, behind its unit: `` per doubling``.
        left_out: Blocks that lack something that others of their setting have.
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

    def scaled(self, reference: pd.Series[float]) -> Blocks:
        """Divide effects and steps by a number that each block has."""
        shared = self.effects.index.intersection(reference.index)
        kept = self.effects.loc[shared].div(reference[shared], axis=0)
        steps = None if self.steps is None else self.steps.loc[shared].div(reference[shared], axis=0)
        scores = None if self.scores is None else self.scores.loc[shared]  # ranks have no unit
        lost = self.left_out + len(self.effects) - len(kept)
        return replace(self, effects=kept, scores=scores, steps=steps, left_out=lost)


class ClaimOptions(Settings):
    """Options of every claim test."""

    COMPARED: ClassVar[tuple[str, ...]] = ()
    """Options that name what is compared: conditions, lists of conditions, or columns."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""

    def compared(self) -> set[str]:
        """List the columns along which the test compares, so that their values are not different blocks."""
        columns: set[str] = set()
        for name in self.COMPARED:
            value = getattr(self, name)
            for item in value if isinstance(value, list | tuple) else [value]:
                columns |= set(item if isinstance(item, Mapping) else () if item is None else [item])
        return columns


@dataclass(frozen=True)
class ClaimTest(Generic[T]):
    """A test with its declared options. It is called with the rows of one setting, and plain options."""

    name: str
    settings: type[T]
    run: Callable[[pd.DataFrame, T], Blocks | Exact]

    def check(self, options: Mapping[str, Any]) -> T:
        """Check options.

        Raises:
            ConfigError: With every mistake in them.
        """
        return parse(self.settings, dict(options), f"claim test {self.name}: options")

    def __call__(self, rows: pd.DataFrame, *, options: Mapping[str, Any]) -> Blocks | Exact:
        """Effects of one setting's blocks, one a replica.

        Raises:
            ConfigError: If an option is wrong.
            SelectionError: If a condition names an unknown column or chooses no row.
        """
        return self.run(rows, self.check(options))


def complete(tables: list[pd.DataFrame]) -> tuple[list[pd.DataFrame], int]:
    """Keep the replicas that have every value that others have, and count those that have not.

    Raises:
        EmptySelectionError: If no replica has all.
    """
    import pandas as pd

    joined = pd.concat(tables, axis=1, keys=range(len(tables)))
    full = joined.dropna()
    if full.empty:
        raise EmptySelectionError("no replica has everything that is compared")
    return [full[place] for place in range(len(tables))], len(joined) - len(full)
