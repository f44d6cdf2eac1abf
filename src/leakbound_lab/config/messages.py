"""Turn plain values into settings, with one sentence per mistake: the key, the value and what is allowed."""

import datetime
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from leakbound import registry
from leakbound.words import printable, shown, without_password
from leakbound_lab import registries
from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import Settings

try:  # the one in C is ten times as fast, where it is built
    from yaml import CSafeLoader as _SafeLoader
except ImportError:
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

T = TypeVar("T", bound=Settings)
LARGEST_FILE = 2**20
"""Largest size of a YAML file in bytes. The largest preset has some 10,000."""
MOST_VALUES = 100_000
"""Largest number of values of a configuration, each counted as often as aliases repeat it."""
DEEPEST = 40
"""Largest depth of mappings and lists inside each other."""
MOST_SHOWN = 50
"""Largest number of mistakes that one message states. The rest is counted."""
_LONGEST = 1000  # characters of one mistake
_LONGEST_KEY = 80


class ConfigError(ValueError):
    """A configuration that cannot be run. The message has one line per mistake."""

    def __init__(self, source: str, mistakes: Iterable[str]) -> None:
        listed = list(mistakes)
        lines = []
        for mistake in listed[:MOST_SHOWN]:
            text = without_password(mistake[: 2 * _LONGEST])
            text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
            lines.append(f"{source}: {printable(text)}")
        if len(listed) > MOST_SHOWN:
            lines.append(f"{source}: and {len(listed) - MOST_SHOWN} more mistakes")
        super().__init__("\n".join(lines))


def read_yaml(path: Path) -> dict[Any, Any]:
    """Read the mapping at the top of a YAML file. Its keys may be anything until they are parsed.

    Raises:
        ConfigError: If the file cannot be read, is larger or deeper than any configuration, has a key twice,
            or holds no mapping.
    """
    return mapping_of(read_text(path), str(path))


def read_text(path: Path) -> str:
    """Read the text of a YAML file.

    Raises:
        ConfigError: If the file cannot be read, or is larger than any configuration.
    """
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(str(path), [f"has more than {LARGEST_FILE} bytes, so it is no configuration"])
        return content.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = f"cannot be read: {error}{registry.nearest_path(path)}"
        raise ConfigError(str(path), [problem]) from error


def mapping_of(text: str, source: str) -> dict[Any, Any]:
    """Parse the mapping at the top of a YAML text.

    Args:
        text: YAML.
        source: Name for messages.

    Raises:
        ConfigError: If the text is no YAML, deeper than any configuration, has a key twice, or holds no mapping.
    """
    try:
        values = _values(text)
    except yaml.YAMLError as error:
        raise ConfigError(source, [f"cannot be read: {_place_of(error)}"]) from error
    if not isinstance(values, dict):
        raise ConfigError(source, ["must hold a mapping of settings at its top"])
    return values


def _place_of(error: yaml.YAMLError) -> str:
    """State the fault of a text that is no YAML, after its line and column."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return " ".join(str(error).split())
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return place + ", ".join(text for text in (error.context, error.problem) if text)


def _values(text: str) -> Any:
    """Parse YAML as plain values. Unlike in PyYAML, a repeated key or excessive depth is an error.

    Raises:
        yaml.YAMLError: With the first fault.
    """
    depth = 0
    for event in yaml.parse(text, Loader=_SafeLoader):  # nodes are made by a recursion, which depth can crash
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise _problem(f"more than {DEEPEST} mappings and lists are inside each other", event)
    loader = _Loader(text)
    node = loader.get_single_node()
    if node is None:
        return None
    waiting = [(node, 0)]
    for parent, depth in waiting:  # follows aliases, which can multiply and lead back
        if len(waiting) > MOST_VALUES:
            raise _problem(f"more than {MOST_VALUES} values, aliases counted", parent)
        if depth > DEEPEST:
            raise _problem(f"more than {DEEPEST} mappings and lists are inside each other", parent)
        children = [*parent.value] if isinstance(parent, yaml.SequenceNode) else []
        first: dict[str, yaml.Node] = {}
        for key, value in parent.value if isinstance(parent, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and first.setdefault(key.value, key) is not key:
                line = first[key.value].start_mark.line + 1
                raise _problem(f"{shown(key.value)} is set twice, first in line {line}", key)
            children += [key, value]
        waiting += [(child, depth + 1) for child in children]
    return loader.construct_document(node)


def _problem(text: str, place: yaml.Event | yaml.Node) -> yaml.MarkedYAMLError:
    """Make an error at the place of an event or a node."""
    return yaml.MarkedYAMLError(problem=text, problem_mark=place.start_mark)  # type: ignore[arg-type]


class _Loader(_SafeLoader):
    """Loader that reports a malformed number, date or text as an error of the file."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Construct the value of a node."""
        try:
            value = super().construct_object(node, deep)
            if isinstance(value, int | float) and ":" in str(node.value):
                raise _problem(
                    f"{node.value} means {value} in YAML, to the base of 60; write that, or put quotes around it",
                    node,
                )
            return value
        except (ValueError, LookupError, AttributeError, ArithmeticError) as error:
            kind = str(node.tag).rpartition(":")[2]
            raise _problem(f"{shown(node.value)} is no {kind}", node) from error


def parse(model: type[T], values: dict[Any, Any], source: str) -> T:
    """Parse plain values as settings.

    Args:
        model: Class of the settings.
        values: Nested plain values.
        source: Name for messages.

    Raises:
        ConfigError: With every mistake found.
    """
    if unfit := list(_unfit(values)):
        raise ConfigError(source, unfit)
    try:
        return model.model_validate(values, context={"plugins": values.get("plugins")})
    except ValidationError as error:
        details = error.errors(include_url=False)
        mistakes = [_sentence(model, values, detail) for detail in details if not _follows(detail, details)]
        raise ConfigError(source, mistakes) from None  # pydantic's error would show passwords


def _follows(detail: ErrorDetails, details: Iterable[ErrorDetails]) -> bool:
    """Return True for a list that is too short only because items of it were refused, each with its own error."""
    if detail["type"] != "too_short" or len(detail["input"]) < detail["ctx"]["min_length"]:
        return False
    location = detail["loc"]
    return any(
        len(other["loc"]) > len(location) and other["loc"][: len(location)] == location for other in details
    )


def _unfit(values: Any) -> Iterator[str]:
    """Yield values that no setting can have: not JSON, too many, or nested too deeply."""
    waiting = [("", values, 0)]
    count = 0
    while waiting:
        key, value, depth = waiting.pop()
        count += 1
        if count > MOST_VALUES:
            yield f"{key}: more than {MOST_VALUES} values"
            return
        if depth > DEEPEST:
            yield f"{key}: is nested too deeply"
            return
        inner: list[tuple[str, Any, int]] = []
        if isinstance(value, Mapping):
            for name, item in value.items():
                if isinstance(name, str):
                    inner.append((f"{key}.{name}".removeprefix("."), item, depth + 1))
                else:
                    yield f"{key or 'top'}: has the key {shown(name)}; keys are text, put quotes around it if meant"
        elif isinstance(value, list | tuple):
            inner = [(f"{key}[{index}]", item, depth + 1) for index, item in enumerate(value)]
        elif problem := _problem_of(value):
            yield f"{key} = {shown(value)}: {problem}"
        waiting += reversed(inner)


def _problem_of(value: Any) -> str | None:
    """Say why a single value can be no setting, or return None if it can."""
    if isinstance(value, str):  # JSON's escapes can make half a character
        surrogates = not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value)
        return "is no Unicode text" if surrogates else None
    if isinstance(value, float):
        return None if math.isfinite(value) else "must be a finite number"
    if isinstance(value, int):
        return None if abs(value) < 2**63 else "is too large a number"
    if isinstance(value, datetime.date):
        return "YAML reads this as a date; put quotes around it if text is meant"
    if value is None or isinstance(value, BaseModel):  # settings have been checked before
        return None
    return f"is of type {type(value).__name__}; give text, a number, a list or a mapping"


def _sentence(model: type[BaseModel], values: Any, detail: ErrorDetails) -> str:
    """Write one error of pydantic as ``key = value: what is allowed``."""
    location = detail["loc"]
    key = ""
    for step in location:
        if isinstance(step, int):
            key += f"[{step}]"
        elif step != "[key]":
            key += f".{step[:_LONGEST_KEY]}{'...' if len(step) > _LONGEST_KEY else ''}"
    key = key.lstrip(".")
    if detail["type"] == "extra_forbidden":
        return f"{key}: unknown setting; {registry.nearest(str(location[-1]), _keys_at(model, values, location[:-1]))}"
    if detail["type"] == "missing":
        return f"{key}: is missing and has no default"
    message = detail["msg"].removeprefix("Value error, ")
    message = re.sub("^(Input|String|Tuple|Dictionary) ", "", message)
    message = message.replace("valid tuple", "valid list").replace("valid dictionary", "valid mapping")
    message = message.removesuffix(" or object to extract fields from")
    # The message names the setting already.
    if detail["type"] == "value_error" and isinstance(detail["input"], Mapping):
        return f"{key}: {message}".removeprefix(": ")
    if location[-1:] == ("[key]",):
        return f"{key}: as a name, {message}"
    return f"{key} = {shown(detail['input'])}: {message}{_hint(detail)}"


def _hint(detail: ErrorDetails) -> str:
    """Say how to write a list of one, or a number that was read as text, e.g. ``1e3``."""
    if detail["type"] == "tuple_type" and isinstance(detail["input"], str | int | float):
        return f"; write [{shown(detail['input'])}]"
    if detail["type"] not in ("int_type", "float_type") or not isinstance(detail["input"], str):
        return ""
    number = math.nan
    with suppress(ValueError):
        number = float(detail["input"])
    if not math.isfinite(number):
        return ""
    text = repr(number) if detail["type"] == "float_type" or number % 1 else str(int(number))
    text = text if "." in text else text.replace("e", ".0e")
    if text == detail["input"]:
        return (
            "; this is text: leave out quotes around it, or write it into a --configfile, because Snakemake's --config "
            "makes text of numbers inside lists and mappings"
        )
    return f"; this is read as text: write {text}"


def _keys_at(model: type[BaseModel], values: Any, location: tuple[int | str, ...]) -> list[str]:
    """List the settings of the section at ``location`` of the values."""
    sections = [model]
    plugins = values.get("plugins") or {}
    for step in location:
        fields = [section.model_fields[step] for section in sections if step in section.model_fields]
        sections = [inner for field in fields for inner in _models_in(field.annotation)] or sections
        values = values[step]
        if Defense in sections and isinstance(name := values.get("mechanism"), str):
            sections = [registries.MECHANISMS.get(name, plugins.get("mechanisms", {}))]
        if Attack in sections and step != "custom":
            sections = [registries.ATTACKS.get(str(step), plugins.get("attacks", {}))]
    return sorted({name for section in sections for name in section.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """List the classes of settings inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def unknown_name(key: str, name: str, what: str, allowed: list[str]) -> list[str]:
    """List the message about ``name`` if it is not known, else nothing."""
    if name in allowed:
        return []
    return [f"{key} = {shown(name)}: unknown {what}; {registry.nearest(name, allowed)}"]
