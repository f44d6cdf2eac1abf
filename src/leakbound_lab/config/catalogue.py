"""Figures, tables and the claims they make."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, Strict, model_validator

from leakbound_lab.config.settings import Listed, Name, Settings

EFFICIENCY = "efficiency"
"""Name of the table of training times."""
SCOREBOARD = "scoreboard"
"""Name of the table that counts the verdicts on all claims."""

NETWORKS = {"tan2024": ("lenet", "resnet10", "alexnet", "vgg16"), "pmidp": ("mlp", "cnn")}
"""Paper to its networks. Claims that it prints are judged on these alone."""

STUDY_COLUMNS = (
    *("run", "dataset", "model", "defense", "level", "rounds", "batch_size", "replica", "learning_rate"),
    *("length", "chosen", "source", "variant", "unit", "metric", "value", "low", "high", "status"),
)
"""Columns of the table of a study."""
SOURCES = ("training", "accounting", "derived", "evidence")
"""Sources of a study's rows in addition to its attacks."""

_MEMBERSHIP = ("membership", "strongest")
_INVERSION = ("model_inversion", "printed")
_TUNED = ("model_inversion", "tuned")
IMPROVEMENTS = {
    "imp_mia": (_MEMBERSHIP,),
    "imp_dra": (_INVERSION,),
    "imp_dra_gain": (_TUNED,),
    "gdc": (_MEMBERSHIP, _INVERSION),
    "gdc_gain": (_MEMBERSHIP, _TUNED),
}
"""Derived metric to source and variant of the attacks that it compares with those on undefended networks."""


def _condition(wanted: Any) -> Any:
    """Check a condition on a column: a value, a list of values, or ``{not: ...}`` with values to leave out.

    Raises:
        ValueError: If it is anything else.
    """
    values = wanted.get("not", {}) if isinstance(wanted, dict) and len(wanted) == 1 else wanted
    values = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(value, dict | list | tuple) for value in values):
        raise ValueError("give a value, a list of values, or {not: ...} with one of these")
    return wanted


Conditions = dict[str, Annotated[Any, AfterValidator(_condition)]]
"""Column to the value, or list of values, that rows must have, or to ``{not: ...}`` with values that they
must not have."""


def admitted(wanted: Any, values: Iterable[Any]) -> tuple[Any, ...]:
    """Select those of some values that meet a condition on a column, all of them if there is none."""
    if wanted is None:
        return tuple(values)
    refused = isinstance(wanted, dict)
    listed = plain_values(wanted["not"] if refused else wanted)
    return tuple(value for value in values if (value in listed) != refused)


def plain_values(wanted: Any) -> tuple[Any, ...]:
    """List the values that a condition asks for, none if it only leaves some out."""
    return (
        () if isinstance(wanted, dict) else tuple(wanted) if isinstance(wanted, list | tuple) else (wanted,)
    )


class ClaimConfig(Settings):
    """A paper's statement about a figure, as a test on the figure's own rows."""

    id: Name
    text: str
    """The statement, in one sentence."""
    printed: bool = True
    """True if the figure's paper prints the statement. False if it is ours: about a corrected metric, a
    formula of ours, or a control."""
    test: Name
    """Registered claim test."""
    delta: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Smallest effect of interest, in ``unit``, stated before anything is run. For a trend it is the smallest
    slope, and the largest step back that is tolerated. Every claim has one, except claims about closed forms,
    which hold exactly."""
    unit: str | None = None
    """Unit of effects: accuracy, AUC, dB, ..."""
    relative_to: Conditions | None = None
    """Conditions of rows of the figure's table, shown or not. Effects are divided by the mean of these rows
    in the block. For an error they are the rows of the attack's start, or of an attacker who knows
    nothing."""
    decibels: bool = False
    """Set for positive values that spread over powers of ten, as errors do: they are compared in dB, as 10
    log₁₀."""
    options: dict[str, Any] = {}
    """Options of the test: selections, columns."""

    @model_validator(mode="after")
    def _has_one_unit(self) -> "ClaimConfig":
        if (self.delta is None) != (self.unit is None):
            raise ValueError(
                f"claim {self.id}: delta and unit go together, as in delta: 0.01, unit: accuracy"
            )
        if self.decibels and (self.relative_to is not None or self.unit != "dB"):
            raise ValueError(
                f"claim {self.id}: decibels are relative already: leave out relative_to, and give unit: dB"
            )
        return self

    def smallest_effect(self) -> float:
        """Return the delta of a claim about an experiment.

        Raises:
            ValueError: If the claim has none.
        """
        if self.delta is None:
            raise ValueError(
                f"delta is missing (claim {self.id}): give the smallest effect of interest, > 0, and its "
                "unit, as in delta: 0.01, unit: accuracy; closed forms have options.exact: true instead"
            )
        return self.delta


class FigureConfig(Settings):
    """One figure or table of a paper."""

    id: Name
    paper: Literal["tan2024", "zeng2022", "pmidp", "wang2020", "beyond"]
    title: str
    """A few words for lists and the report."""
    study: Name | None = None
    """Study whose rows it shows. Give exactly one of ``study``, ``illustration`` and ``table``."""
    illustration: Name | None = None
    """Illustration whose rows it shows."""
    table: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*(/[a-z][a-z0-9_]*)?$")] | None = None
    """Other table whose rows it shows: ``efficiency``, ``scoreboard``, or that of a section: ``theory/case2``."""
    select: Conditions = {}
    """Conditions that its rows meet."""
    rates: Literal["chosen", "all"] = "chosen"
    """Rows of a study that it shows: those of the learning rate chosen for each replica, or of all
    candidates."""
    plot: Name
    """Registered plot."""
    options: dict[str, Any] = {}
    """Passed to the plot."""
    caption: str
    """Text under the figure: what is shown, what the paper leaves open and how it was decided."""
    facts: dict[Name, Listed[Any]] = {}
    """What the paper prints about the experiment: a column or another quantity to its values, none if they
    are not printed; a defense to its levels. The caption says what differs."""
    claims: Annotated[tuple[ClaimConfig, ...], Strict(False)] = ()

    @model_validator(mode="after")
    def _has_one_source(self) -> "FigureConfig":
        if sum(source is not None for source in (self.study, self.illustration, self.table)) != 1:
            raise ValueError(f"figure {self.id}: give exactly one of study, illustration and table")
        return self

    def admitted(self, column: str, values: Iterable[Any]) -> tuple[Any, ...]:
        """Select those of some values that meet the figure's conditions on a column."""
        return admitted(self.select.get(column), values)

    def compares(self, column: str) -> bool:
        """Say whether the figure distinguishes values of a column, by an axis, by series or by selection."""
        series = self.options.get("series")
        drawn = [self.options.get("x"), self.options.get("along")]
        drawn += series if isinstance(series, list | tuple) else ()
        return column in drawn or column in self.select


class Catalogue(Settings):
    """All figures and tables (``config/figures/*.yaml``)."""

    figures: Annotated[tuple[FigureConfig, ...], Strict(False)]

    @model_validator(mode="after")
    def _ids_are_unique(self) -> "Catalogue":
        keys = [f"{figure.paper}/{figure.id}" for figure in self.figures]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise ValueError(f"figure {twice[0]} appears twice")
        return self
