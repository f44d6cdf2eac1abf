"""Types shared by all sections of a configuration: names, lists, and the strict base class."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict

from leakbound.registry import Registry

T = TypeVar("T", bound="Settings")
V = TypeVar("V")
LONGEST_LIST = 1000
"""Entries of any list that jobs are made of; a longer one is a typing error."""

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
Listed = Annotated[tuple[V, ...], Strict(False), Field(max_length=LONGEST_LIST)]
"""Values of one type, as many as jobs can be made of."""
Some = Annotated[Listed[V], Field(min_length=1)]
"""At least one value."""
Names = Listed[Name]
Level = Annotated[float, Field(ge=0, le=1e12)]
Levels = Listed[Level]
Rates = Some[Annotated[float, Field(gt=0, le=100)]]
Weights = Some[Annotated[float, Field(ge=0, le=1e12)]]
Span = Annotated[tuple[int, int], Strict(False)]
Line = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""Text without line breaks and other control characters: a path, an address, a column."""
Target = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*:[A-Za-z_][A-Za-z0-9_]*$", max_length=500)]
"""Something from outside the package, ``module:attribute``."""

# Bounds of whole numbers. They are far above what anybody means and low enough that a typing error ends here, and not
# in a machine without memory.
Steps = Annotated[int, Field(ge=1, le=10**8)]
"""Steps, iterations, epochs: what a job does one after another."""
Records = Annotated[int, Field(ge=1, le=10**9)]
"""Records of a dataset or a batch."""
Count = Annotated[int, Field(ge=1, le=100_000)]
"""Things that a job makes, or holds in memory."""
Seconds = Annotated[float, Field(gt=0)]
"""A span of time."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Replicas = Annotated[int, Field(ge=1, le=1000)]
"""Seeds of a run."""


class Settings(BaseModel):
    """Base of all sections: immutable, no unknown keys, no silent conversion of types, no infinite numbers."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def class_of(kind: Registry, name: str, parent: type[T], context: Any) -> type[T]:
    """Class of the settings of a registered thing, or of one from outside that the values under validation declare.

    The declared ones are taken from the plain values, because they are needed before all of these are validated.

    Raises:
        ValueError: If there is no such class; pydantic makes it a mistake of the configuration.
    """
    declared = (context or {}).get("plugins")
    plugins = declared.get(f"{kind.kind}s") if isinstance(declared, Mapping) else None
    try:
        known = kind.get(name, plugins if isinstance(plugins, Mapping) else {})
    except ImportError as error:
        raise ValueError(f"{kind.kind} {name!r} cannot be imported: {error}") from error
    if not (isinstance(known, type) and issubclass(known, parent)):
        raise ValueError(f"{kind.kind} {name!r} is no subclass of {parent.__module__}.{parent.__name__}")
    return known
