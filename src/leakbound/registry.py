"""Find things by name, importing them only when used.

A built-in shape of noise is one line here. An outside package adds an entry through an entry point of the group
``leakbound.<kind>``. A configuration adds one by ``plugins: {<kind>s: {<name>: "module:attribute"}}``.
"""

import difflib
import importlib
import importlib.util
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, requires
from pathlib import Path
from types import MappingProxyType
from typing import Any

_LONGEST = 80  # characters of a name in a message
_DISTRIBUTIONS = {"yaml": "pyyaml", "pynvml": "nvidia-ml-py"}  # of modules with another name
_MOST = 40  # names in a message


class UnknownNameError(ValueError):
    """A name without a registry entry. The message lists the known names and suggests the nearest one."""


def nearest(name: str, names: list[str]) -> str:
    """List the known names for a message, and suggest the one that is nearest to ``name``, if any is near."""
    close = difflib.get_close_matches(name[:_LONGEST], names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    short = (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in sorted(names))
    listed = [text if text.isprintable() else repr(text) for text in short]  # names may come from a file
    rest = [f"and {len(listed) - _MOST} more"] if len(listed) > _MOST else []
    return f"known: {', '.join([*listed[:_MOST], *rest]) or 'none'}{hint}"


def nearest_path(path: Path) -> str:
    """Suggest the file or folder whose name is nearest to that of one which is not there.

    Args:
        path: Path that may not exist, and whose folder may not.

    Returns:
        End of a sentence, empty if the path exists or nothing there has a similar name.
    """
    while not path.parent.is_dir():
        path = path.parent
    names = [] if path.exists() else [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, [name for name in names if name[0] != "."], n=1)
    return f"; did you mean {str(path.with_name(close[0]))!r}?" if close else ""


class Registry:
    """Names of one kind of thing, each bound to ``"module:attribute"`` or to an object.

    Args:
        kind: Singular noun for messages, e.g. ``"model"``, and the last part of the group of entry points,
            ``leakbound.<kind>``.
        builtin: Name to ``"module:attribute"`` path, imported on first use.

    Example:
        >>> SHAPES.path("natural")
        'leakbound.channels.shapes:Natural'
    """

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self.builtin = tuple(builtin)
        self._entries: dict[str, Any] = dict(builtin)

    def names(self, plugins: Iterable[str] = ()) -> list[str]:
        """List all known names, sorted: the built-in ones, those of installed packages, and ``plugins``."""
        return sorted({*self._entries, *_outside(self.kind), *plugins})

    def add(self, name: str, target: object) -> None:
        """Bind ``name`` to an object or to a ``"module:attribute"`` path.

        Raises:
            ValueError: If ``name`` is bound to something else already.
        """
        if self._entries.get(name, target) != target:
            raise ValueError(f"{self.kind} {name!r} is registered already; choose another name")
        self._entries[name] = target

    def path(self, name: str) -> str:
        """Return the ``"module:attribute"`` path of an entry, without importing it.

        Args:
            name: Name of the entry, as in a configuration.

        Raises:
            UnknownNameError: If no entry has this name.
        """
        target = self._target(name, {})
        return target if isinstance(target, str) else f"{target.__module__}:{target.__qualname__}"

    def get(self, name: str, plugins: Mapping[str, str] = MappingProxyType({})) -> Any:
        """Return the object of an entry, imported if necessary.

        Args:
            name: Name of the entry, as in a configuration.
            plugins: Name to path of entries in addition to the registered ones.

        Raises:
            UnknownNameError: If no entry has this name.
            ImportError: If nothing is at the entry's path, or something that cannot be called.
        """
        target = self._target(name, plugins)
        return load_attribute(target, f"{self.kind} {name!r}") if isinstance(target, str) else target

    def _target(self, name: str, plugins: Mapping[str, str]) -> Any:
        """Return the object or path bound to ``name``."""
        for entries in (plugins, self._entries, _outside(self.kind)):
            if name in entries:
                return entries[name]
        raise UnknownNameError(f"unknown {self.kind} {name!r}; {nearest(name, self.names(plugins))}")


def load_attribute(path: str, what: str) -> Any:
    """Import the function or class at ``"module:attribute"``.

    Args:
        path: Module and attribute.
        what: What it is, for messages.

    Raises:
        ImportError: If nothing is there, or something that cannot be called.
    """
    module, _, attribute = path.partition(":")
    try:
        value = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{what}: {missing(error)}", name=error.name) from error
    except (AttributeError, ValueError) as error:
        raise ImportError(f"{what} points to {path!r}, which does not exist") from error
    if not callable(value):
        raise ImportError(f"{what} points to {path!r}, which is neither a function nor a class")
    return value


def absent(path: str) -> str | None:
    """Say why nothing can be at ``"module:attribute"``, or return None. The module itself is not imported.

    A name counts as there if it stands anywhere in the source. Modules without source, and those that import
    all names of another, are not judged.

    Args:
        path: Module and attribute.
    """
    module, _, attribute = path.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a module that was made in this process
        return None
    except ImportError as error:  # of a package that holds it
        if not f"{module}.".startswith(f"{error.name}."):
            return f"{module} cannot be imported: {error}"
        spec = None
    if spec is None:
        return f"there is no module {module!r}; put the folder that holds it on PYTHONPATH, or install it"
    if not str(spec.origin).endswith(".py"):
        return None
    source = Path(str(spec.origin)).read_text(encoding="utf-8", errors="replace")
    if re.search(rf"\b({re.escape(attribute)}|__getattr__|import \*)", source):
        return None
    there = re.findall(r"^(?:def |class |(?=\w+ = ))(\w+)", source, re.M)
    return f"{module} has no {attribute!r}; {nearest(attribute, there)}"


def missing(error: ModuleNotFoundError) -> str:
    """Say that a module is missing, and which extra installs it or where it must be."""
    module = (error.name or "").partition(".")[0]
    distribution = _DISTRIBUTIONS.get(module, module).replace("_", "-")
    try:
        needs = requires("leakbound") or []
    except PackageNotFoundError:  # run from a source tree that is not installed
        needs = []
    for need in needs:
        extra = re.search(r'extra == "([\w-]+)"', need)
        needed = re.split(r"[^\w.-]", need, maxsplit=1)[0].replace("_", "-").lower()
        if extra and needed == distribution:
            return f"{module} is not installed: pip install 'leakbound[{extra[1]}]'"
    return f"{error}; put the folder that holds it on PYTHONPATH, or install it"


@cache
def _outside(kind: str) -> dict[str, str]:
    """Return the entries of installed packages, name to path."""
    return {entry.name: entry.value for entry in _installed().select(group=f"leakbound.{kind}")}


@cache
def _installed() -> Any:
    """Return the entry points of all installed packages. Each look at their folders takes 30 ms."""
    return entry_points()


SHAPES = Registry(
    "shape",
    {
        "natural": "leakbound.channels.shapes:Natural",
        "white": "leakbound.channels.shapes:White",
        "personalized": "leakbound.channels.shapes:Personalized",
        "personalized_printed": "leakbound.channels.shapes:PersonalizedPrinted",
        "least_power": "leakbound.channels.shapes:LeastPower",
        "rate_distortion": "leakbound.channels.shapes:RateDistortion",
    },
)
