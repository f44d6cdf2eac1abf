"""Options of plots and claim tests: declared as settings, checked before anything is drawn or tested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field, Strict, ValidationError

from leakbound.config.settings import Settings
from leakbound.registry import nearest

T = TypeVar("T", bound=Settings)
Columns = Annotated[tuple[str, ...], Strict(False)]
Point = Annotated[tuple[float, float], Strict(False)]
OneOrMore = Annotated[tuple[str, ...], Strict(False), Field(min_length=1)]


class OptionsError(ValueError):
    """Options that a plot or a claim test does not understand; one line per mistake."""


def parse(model: type[T], options: Mapping[str, Any], owner: str) -> T:
    """Options as the settings that their owner declares.

    Args:
        model: Declared settings.
        options: Plain values from the catalogue.
        owner: What they belong to, for messages, e.g. ``"plot levels"``.

    Raises:
        OptionsError: With every mistake: the option, its value and what is allowed.
    """
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        mistakes = []
        for detail in error.errors():
            key = ".".join(str(part) for part in detail["loc"])
            if detail["type"] == "extra_forbidden":
                known = nearest(str(detail["loc"][-1]), list(model.model_fields))
                mistakes.append(f"{owner}: options.{key}: unknown option; {known}")
            elif detail["type"] == "missing":
                mistakes.append(f"{owner}: options.{key}: is missing and has no default")
            else:
                message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
                mistakes.append(f"{owner}: options.{key} = {detail['input']!r}: {message}")
        raise OptionsError("\n".join(mistakes)) from error
