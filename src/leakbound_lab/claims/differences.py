"""Claims about differences: above another series or a number, at most delta apart, equal closed forms."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import model_validator

from leakbound_lab.claims.outcomes import (
    ROUNDING,
    Blocks,
    ClaimOptions,
    ClaimTest,
    Exact,
    Rule,
    complete,
    exactly,
)
from leakbound_lab.claims.selection import (
    Columns,
    EmptySelectionError,
    select,
    series_means,
    split,
    with_strength,
)
from leakbound_lab.config.catalogue import Conditions

if TYPE_CHECKING:
    import pandas as pd


class Compared(ClaimOptions):
    """Two series, or a series and a number."""

    COMPARED: ClassVar[tuple[str, ...]] = ("a", "b")

    a: Conditions
    """Conditions of the first series: the one claimed to be larger, or smaller in the test ``less``."""
    b: Conditions | None = None
    """Conditions of the other series."""
    value: float | None = None
    """A number instead of the other series."""
    match: Columns = ("level",)
    """Columns that must agree. ``strength`` ranks the levels of each defense from the strongest."""

    @model_validator(mode="after")
    def _has_one_reference(self) -> Compared:
        if (self.b is None) == (self.value is None):
            raise ValueError("give exactly one of b and value")
        return self

    def compared(self) -> set[str]:
        """List the columns in which the two series differ. Their values do not distinguish blocks."""
        return {
            column
            for column in super().compared()
            if self.b is None or self.a.get(column) != self.b.get(column)
        }


class Difference(Compared):
    """One series above another one, or above a number, or at most as high."""

    exact: bool = False
    """True if the rows leave nothing to chance. No match may then contradict the claim by more than rounding."""


class Equality(Compared):
    """Two closed forms that agree."""

    exact: Literal[True] = True
    """Identities hold or fail without chance."""
    tolerance: float = 1e-6
    """Largest relative difference that is allowed."""


def compare_series(sign: int, rule: Rule, rows: pd.DataFrame, options: Compared) -> Blocks | Exact:
    """Compare two series in each replica, averaged over the matches.

    If the rows leave nothing to chance (``exact``), no difference may contradict the claim by more than
    rounding. A claim of at most delta then is one of at most 0, and the series may reach a bound.

    Args:
        sign: 1 if the first series is claimed to be larger, -1 if smaller.
        rule: ``beyond`` for a claim that they differ, ``within`` for at most delta either way, ``at most``
            for at most delta upward.
        rows: Rows of one dataset and network.
        options: Conditions of both series.

    Returns:
        The mean difference in each replica, in the metric's unit. For closed forms, whether the claim holds.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If the series have no match in common.
    """
    if isinstance(options, Difference) and options.exact:
        means = np.array(_means(rows, options))
        gaps = (sign if rule == "beyond" else -1) * (means[:, 0] - means[:, 1])
        slack = ROUNDING * np.abs(means).max(axis=1)
        return exactly(gaps, slack, f"{len(gaps)} comparisons", nothing=rule == "beyond" and not gaps.any())
    rows = with_strength(select(rows, options.where))
    series = [select(rows, conditions) for conditions in (options.a, options.b) if conditions is not None]
    tables, left_out = complete(series_means(series, options.match))
    effects = sum(table[0] - (table[1] if options.value is None else options.value) for table in tables)
    over = f" over {len(tables)} matches" if len(tables) > 1 else ""
    detail = f"sign flips; effect: mean difference{over}"
    differences = (effects / len(tables)).to_frame("difference")
    return Blocks(differences, sign, detail, rule=rule, left_out=left_out)


def identify(rows: pd.DataFrame, options: Equality) -> Exact:
    """Compute the largest relative difference of two closed forms.

    Args:
        rows: Rows of one dataset and network.
        options: Conditions of both series, and the difference that is allowed.

    Returns:
        The largest relative difference, and whether it is allowed.

    Raises:
        SelectionError: If a column is missing.
        EmptySelectionError: If the series have no match in common.
    """
    worst = max(abs(a - b) / max(abs(b), 1e-300) for a, b in _means(rows, options))
    detail = f"largest relative difference {worst:.3g}, allowed {options.tolerance:g}"
    return Exact(worst, worst <= options.tolerance, detail)


def _means(rows: pd.DataFrame, options: Compared) -> list[tuple[float, float]]:
    """Return the means of both series for each match."""
    rows = with_strength(select(rows, options.where))
    first = split(select(rows, options.a), options.match)
    if options.value is not None:
        return [(float(group["value"].mean()), options.value) for group in first.values()]
    second = split(select(rows, options.b or {}), options.match)
    pairs = [
        (float(first[key]["value"].mean()), float(second[key]["value"].mean()))
        for key in first
        if key in second
    ]
    if not pairs:
        raise EmptySelectionError(f"the series share no {', '.join(options.match)}")
    return pairs


greater = ClaimTest("greater", Difference, partial(compare_series, 1, "beyond"))
less = ClaimTest("less", Difference, partial(compare_series, -1, "beyond"))
within = ClaimTest("within", Compared, partial(compare_series, 1, "within"))
at_most = ClaimTest("at_most", Difference, partial(compare_series, 1, "at most"))
equals = ClaimTest("equals", Equality, identify)
