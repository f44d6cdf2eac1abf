"""What all sections of a configuration share: names, lists, and the strict base class."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
Names = Annotated[tuple[Name, ...], Strict(False)]
Levels = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Strict(False)]
Rates = Annotated[tuple[Annotated[float, Field(gt=0, le=100)], ...], Strict(False), Field(min_length=1)]
Weights = Annotated[tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...], Strict(False), Field(min_length=1)]
PrivacyNoise = Literal["seeded", "secure"]
Span = Annotated[tuple[int, int], Strict(False)]


class Settings(BaseModel):
    """Base of all sections: immutable, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)
