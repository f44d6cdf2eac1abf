"""Options that several commands share, declared once as the fields of a dataclass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Offered:
    """Fields of a group that one command offers, as in ``Annotated[ReadingOptions, Offered(("label", "owner"))]``.

    Attributes:
        names: The fields, in the order of the command's help. Other fields keep their defaults.
    """

    names: tuple[str, ...]


def with_single_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command that takes each field of its groups of options as an option of its own.

    A group is a parameter whose type is a dataclass. Typer makes an option of each parameter of a signature and knows
    no groups, so the returned function states the signature that it is called by.

    Args:
        command: Function of a command. A field of a group has a type and a help as any other option.

    Raises:
        TypeError: If two options have one name.
    """
    parameters: list[Parameter] = []
    groups: dict[str, tuple[type, tuple[str, ...]]] = {}
    for parameter in signature(command, eval_str=True).parameters.values():
        kind, names = _group(parameter.annotation)
        if kind is None:
            parameters.append(parameter.replace(kind=Parameter.KEYWORD_ONLY))
            continue
        groups[parameter.name] = kind, names
        types = get_type_hints(kind, include_extras=True)
        defaults = {field.name: _default(field) for field in fields(kind)}
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
            for name in names
        ]
    names_of_all = [parameter.name for parameter in parameters]
    if len({*names_of_all}) < len(names_of_all):
        raise TypeError(f"{command.__name__}: two options have one name: {', '.join(sorted(names_of_all))}")

    @wraps(command)
    def call(**options: Any) -> Any:
        for parameter, (kind, names) in groups.items():
            group = kind(**{name: options.pop(name) for name in names})
            options[parameter] = group
        return command(**options)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return call


def _group(annotation: Any) -> tuple[type | None, tuple[str, ...]]:
    """Return the dataclass of a group and the fields that a command offers, None for a single option."""
    offered = None
    if get_origin(annotation) is Annotated:
        annotation, *notes = get_args(annotation)
        offered = next((note.names for note in notes if isinstance(note, Offered)), None)
    if not (isinstance(annotation, type) and is_dataclass(annotation)):
        return None, ()
    return annotation, offered or tuple(field.name for field in fields(annotation))


def _default(field: Field[Any]) -> Any:
    """Return the default of an option, or the mark of one that must be given."""
    return Parameter.empty if field.default is MISSING else field.default
