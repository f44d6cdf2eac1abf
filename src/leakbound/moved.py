"""Old paths of modules, which still lead to the modules where these lie now, with a warning.

Places are text: nothing that has moved is imported before somebody asks for an old path of it. So the library does not
depend on the lab, and configurations, plugins and pickles that name old paths still open.
"""

import importlib
import sys
import warnings
from collections.abc import Iterable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_LAB = "leakbound_lab"
_OF_THE_LIBRARY = (
    *(
        "account",
        "calibrate",
        "files",
        "guidance",
        "ledger",
        "own_records",
        "owners",
        "protect",
        "record_options",
        "sheets",
    ),
    "risk_translation",
)
MOVED = {
    **{
        room: f"{_LAB}.{room}"
        for room in (
            *("attacks", "claims", "config", "datasets", "figures", "jobs", "models", "papers", "registries"),
            *("tracking", "training"),
        )
    },
    **{
        f"datasets.{name}": f"leakbound.records.{name}"
        for name in ("arrays", "collection", "conversions", "frames")
    },
    "cli": f"{_LAB}.steps",
    "cli.command_line": "leakbound.commands.command_line",
    "cli.people": f"{_LAB}.commands",
    **{f"cli.people.{name}": f"leakbound.commands.{name}" for name in _OF_THE_LIBRARY},
    "cli.runs": f"{_LAB}.commands",
    "cli.steps": f"{_LAB}.steps",
    "cli.terminal": "leakbound.commands.terminal",
    "storage.fingerprint": f"{_LAB}.jobs.fingerprint",
}
"""Old path, below ``leakbound``, to the full new one. Modules inside have moved with theirs."""
NAMES = {"load_run": f"{_LAB}.commands.finished"}
"""Names that were exported by ``leakbound`` to the modules where they are now."""


def place_now(module: str) -> str:
    """Return the path of a module now. It is the given one unless the module has moved.

    Args:
        module: Full name of a module.

    Example:
        >>> place_now("leakbound.datasets.splits"), place_now("leakbound.engine.engine")
        ('leakbound_lab.datasets.splits', 'leakbound.engine.engine')
    """
    package, _, path = module.partition(".")
    inner = ""
    while package == "leakbound" and path:
        if path in MOVED:
            return MOVED[path] + inner
        path, dot, last = path.rpartition(".")
        inner = f"{dot}{last}{inner}"
    return module


def by_old_name(name: str) -> Any:
    """Import what ``leakbound`` exported by a name.

    Args:
        name: One of ``NAMES``.
    """
    _warn(f"leakbound.{name}", f"{_LAB}.{name}", level=4)
    return getattr(importlib.import_module(NAMES[name]), name)


def _warn(old: str, new: str, level: int) -> None:
    """Say where something is now."""
    warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=level)


class OldPaths(MetaPathFinder, Loader):
    """Finder and loader of modules by their old paths."""

    def find_spec(
        self, fullname: str, path: Iterable[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that has moved, None if it has not. Paths of namespace packages are no sequences."""
        new = place_now(fullname)
        return None if new == fullname else ModuleSpec(fullname, self, origin=new)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module by its new path. The old one becomes a second name of the same module."""
        new = str(spec.origin)
        _warn(spec.name, new, level=3)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it is, but for its own spec, which the import system has replaced."""
        spec = module.__spec__
        if spec is not None and spec.loader_state is not None:
            module.__spec__ = spec.loader_state


def find_old_paths() -> None:
    """Let old paths be imported in this process. They come first, because empty folders may be left of old modules."""
    if not any(isinstance(finder, OldPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, OldPaths())
