"""From plain values to settings: one sentence per mistake, with the key, the value and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leakbound import registry
from leakbound.config import Settings, default_defenses

T = TypeVar("T", bound=Settings)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times as fast, where it is built
_TAGS = {"custom", *(defense.mechanism for defense in default_defenses().values())}


class ConfigError(ValueError):
    """A configuration that cannot be run; one line per mistake."""

    def __init__(self, source: str, mistakes: Iterable[str]) -> None:
        super().__init__("\n".join(f"{source}: {mistake}" for mistake in mistakes))


def read_yaml(path: Path) -> dict[str, Any]:
    """Mapping at the top of a YAML file.

    Raises:
        ConfigError: If it cannot be read, or holds something else.
    """
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(str(path), [f"cannot be read: {error}"]) from error
    if not isinstance(values, dict):
        raise ConfigError(str(path), ["must hold a mapping of settings at its top"])
    return values


def parse(model: type[T], values: dict[str, Any], source: str) -> T:
    """Plain values as settings.

    Args:
        model: Declared settings.
        values: Nested plain values.
        source: Name for messages.

    Raises:
        ConfigError: With every mistake found.
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(source, [_sentence(model, detail) for detail in error.errors()]) from error


def _sentence(model: type[BaseModel], detail: ErrorDetails) -> str:
    """One pydantic finding as ``key = value: what is allowed``."""
    location = detail["loc"]
    key = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for index, part in enumerate(location)
        if not (part in _TAGS and index and location[index - 2 : index - 1] == ("defenses",))
    ).lstrip(".")
    if detail["type"] == "extra_forbidden":
        known = _keys_at(model, location[:-1])
        return f"{key}: unknown setting; {registry.nearest(str(location[-1]), known)}"
    if detail["type"] == "union_tag_invalid":
        return f"{key}.mechanism: unknown mechanism; {registry.nearest(str(detail['ctx']['tag']), sorted(_TAGS))}"
    if detail["type"] == "missing":
        return f"{key}: is missing and has no default"
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"{key} = {detail['input']!r}: {message}"


def _keys_at(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Names of the settings that the section at ``location`` knows."""
    sections: list[type[BaseModel]] = [model]
    for part in location:
        annotations = [section.model_fields[part].annotation for section in sections if part in section.model_fields]
        found = [inner for annotation in annotations for inner in _models_in(annotation)]
        tagged = [s for s in sections if "mechanism" in s.model_fields and s.model_fields["mechanism"].default == part]
        sections = found or tagged or sections
    return sorted({name for section in sections for name in section.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Settings classes anywhere inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def known_names(kind: registry.Registry, plugins: dict[str, str]) -> list[str]:
    """Names that a configuration may use for things of one kind."""
    return sorted({*kind.names(), *plugins})


def unknown_name(key: str, name: str, what: str, known: list[str]) -> list[str]:
    """The message for ``name`` if it is not known."""
    return [] if name in known else [f"{key} = {name!r}: unknown {what}; {registry.nearest(name, known)}"]
