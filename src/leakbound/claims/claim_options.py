"""What the claim tests can be told: which rows to compare, what must match, and the margins."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, Strict, model_validator

from leakbound.claims.options import Columns, Point
from leakbound.config.catalogue import Conditions
from leakbound.config.settings import Settings


class Trend(Settings):
    """A value that moves one way along a column."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    by: str = "level"
    """Column along which the value moves."""
    within: Columns = ()
    """Columns whose values are compared only among themselves."""
    blocks: bool = False
    """Whether replica r is the same problem at every value of ``by``, so that values compare only within replicas."""
    exact: bool = False
    """Whether the rows are closed forms, which must be strictly monotone."""

    @model_validator(mode="after")
    def _has_one_design(self) -> Trend:
        if self.blocks and (self.exact or self.within):
            raise ValueError("blocks goes with neither exact nor within: the replicas are the blocks")
        return self


class Order(Settings):
    """Series that lie above each other."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    series: Annotated[tuple[Conditions, ...], Strict(False), Field(min_length=2)]
    """Conditions of each series, from the lowest to the highest."""
    match: Columns = ("level",)
    """Columns that must agree; ``strength`` ranks each defense's levels from the strongest."""
    blocks: bool = False
    """Whether replica r is the same problem at every match and in every series, so that only replicas count."""


class Steepness(Settings):
    """A value that rises faster along a column in one series than in another one."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    a: Conditions
    """Conditions of the series claimed to be steeper."""
    b: Conditions
    """Conditions of the other series."""
    by: str = "level"
    """Column along which values rise."""
    log: bool = False
    """Whether slopes are taken along the logarithm of the column."""
    blocks: bool = False
    """Whether replica r is the same problem in both series, so that their slopes are paired."""


class Difference(Settings):
    """One series above another one, or above a number."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    a: Conditions
    """Conditions of the series claimed to be larger, or smaller by the test ``less``."""
    b: Conditions | None = None
    """Conditions of the other series."""
    value: float | None = None
    """A number instead of the other series."""
    match: Columns = ("level",)
    """Columns that must agree; ``strength`` ranks each defense's levels from the strongest."""
    margin: float = 0.0
    """How much larger, or smaller, a must be."""
    paired: bool = False
    """Whether equal replicas of both series belong together, as two attackers on one model do."""
    blocks: bool = False
    """Whether replica r is the same problem at every match and in both series, so that only replicas count."""
    exact: bool = False
    """Whether the rows leave nothing to chance; the means of both series must differ in every match."""

    @model_validator(mode="after")
    def _has_one_reference(self) -> Difference:
        if (self.b is None) == (self.value is None):
            raise ValueError("give exactly one of b and value")
        if self.blocks and (self.exact or self.paired):
            raise ValueError("blocks goes with neither exact nor paired: the replicas are the blocks")
        return self


class Identity(Difference):
    """Two closed forms that agree."""

    tolerance: float = 1e-6
    """Largest relative difference."""


class Association(Settings):
    """Two quantities of the same replicas."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    x: Conditions
    """Conditions of the one quantity."""
    y: Conditions
    """Conditions of the other one."""


class Front(Settings):
    """One series' front above each other's; all must have equally many levels."""

    where: Conditions = Field(default_factory=dict)
    """Rows that are compared."""
    best: str
    """Defense claimed to have the best trade-off."""
    against: Columns = ()
    """The others; all that are in the rows if empty."""
    x: Conditions
    """Conditions of the quantity along x, more is better."""
    y: Conditions
    """Conditions of the quantity along y, more is better."""
    reference: Point = (0.0, 0.0)
    """Corner from which hypervolumes are measured."""
