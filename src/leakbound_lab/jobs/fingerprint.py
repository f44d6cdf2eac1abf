"""Hash of the code behind a job, so that an edit reruns exactly what depends on it.

Snakemake does not notice an edit in an imported module. Each rule therefore has this hash as a parameter. It
covers the syntax trees, without docstrings and comments, of the job's command and of every module of the
package that the command reaches by imports, also by imports inside functions.

In commands and steps, names are followed one by one. A step's file also lists and plans its jobs, and edits of
that code rerun nothing. Elsewhere a module counts as a whole, and ``from leakbound.channels.shapes import
Natural`` reaches that module alone, not the ``__init__`` of its package. Two tests make this safe: an
``__init__`` contains nothing but imports and ``__all__``, and an import of a module only defines names.
"""

import ast
import gc
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from leakbound.moved import place_now

_PACKAGES = ("leakbound", "leakbound_lab")
_COMMAND_LINES = ("leakbound.commands.", "leakbound_lab.commands.", "leakbound_lab.steps.")
# Some only show values to the tracker. The decisions of the others reach a job as a parameter, or as the name of a
# module, which is hashed itself.
_NEVER_COUNT = (
    *(f"leakbound_lab.config.{name}." for name in ("whole", "reading", "messages", "checks", "catalogue")),
    *(f"leakbound_lab.{name}." for name in ("tracking.sending", "tracking.store", "jobs", "registries")),
    *(f"leakbound.{name}." for name in ("registry", "words", "moved")),
)
_WRITTEN = {"show_empty": True} if sys.version_info >= (3, 13) else {}  # as earlier versions of Python do
_BLOCKS = ("body", "orelse", "handlers", "finalbody", "cases")  # fields that hold statements
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


@cache
def code_fingerprint(step: str, *others: str) -> str:
    """Compute the fingerprint of the code behind a job.

    Args:
        step: Module of the command line with a command of the same name, e.g. ``leakbound_lab.steps.train``.
        *others: Modules that the command looks up by name, e.g. that of a registered model. A module from
            outside the package counts without its imports. An installed one does not count, because
            provenance records its version.

    Returns:
        Sixteen hexadecimal digits. Files are read once in a process.

    Raises:
        ModuleNotFoundError: If a module of this package does not exist.
        ValueError: If the step has no command of its name.
    """
    digest = hashlib.sha256()
    with _uncollected():
        statements = _statements(step)
        for statement in statements:
            digest.update(_text(statement).encode())
        imported = {module for statement in statements for module in _imports(statement)}
        present = tuple(map(place_now, others))  # plugins may name old paths
        for module, tree_hash in sorted(_closure({*imported, *present}, present).items()):
            digest.update(f"{module}:{tree_hash};".encode())
    return digest.hexdigest()[:16]


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for cycles, which syntax trees have none of: that takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _statements(step: str) -> list[ast.stmt]:
    """List the top-level statements that a step's command uses, in all modules of the command line."""
    command = step.rpartition(".")[2]
    if command not in _definitions(step):
        raise ValueError(f"{step} has no function {command}: a step's command has the name of its file")
    statements: dict[tuple[str, int, str], ast.stmt] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(step, command)]
    while waiting:
        module, name = waiting.pop()
        node = _definitions(module).get(name)
        if node is None or (module, name) in seen:
            continue
        seen.add((module, name))
        if not isinstance(node, ast.Import | ast.ImportFrom):
            statements[module, node.lineno, ""] = node
            waiting += [(module, inner.id) for inner in ast.walk(node) if isinstance(inner, ast.Name)]
            continue
        alias = next(alias for alias in node.names if _bound(alias) == name)
        origin = getattr(node, "module", None) or ""
        if (
            f"{origin}.".startswith(_COMMAND_LINES)
            and _counts(origin)
            and not _path(f"{origin}.{alias.name}")
        ):
            waiting.append((origin, alias.name))
        else:
            alone = ast.ImportFrom(origin, [alias], 0) if origin else ast.Import([alias])
            statements[module, node.lineno, name] = alone
    return [statements[key] for key in sorted(statements)]


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Map each name that a module defines or imports at its top to the statement."""
    definitions: dict[str, ast.stmt] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            definitions.update({_bound(alias): node for alias in node.names})
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [inner for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]
            definitions.update({name.id: node for name in names})
    return definitions


def _bound(alias: ast.alias) -> str:
    """Return the name that an import binds."""
    return alias.asname or alias.name.partition(".")[0]


def _closure(start: set[str], required: tuple[str, ...]) -> dict[str, str]:
    """Map all modules that ``start`` reaches to hashes of their syntax trees. The required ones always count."""
    reached: dict[str, str] = {}
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        if module in reached or not (_counts(module) or module in required):
            continue
        if _is_inside(module):
            reached[module], imports = _read(module)
            waiting += imports
        elif (path := _path(module)) and not any(path.is_relative_to(folder) for folder in _INSTALLED):
            reached[module] = _read(module)[0]
    return reached


def _counts(module: str) -> bool:
    """Return True unless a module is known to change no result."""
    return not f"{module}.".startswith(_NEVER_COUNT) or module == "leakbound_lab.jobs.runs"


def _is_inside(module: str) -> bool:
    """Return True if a module belongs to the library or the lab."""
    return module.partition(".")[0] in _PACKAGES


@cache
def _read(module: str) -> tuple[str, set[str]]:
    """Return the hash of a module's syntax tree, and the modules of this package that it imports."""
    tree = _tree(module)
    return hashlib.sha256(_text(tree).encode()).hexdigest(), _imports(tree)


def _tree(module: str) -> ast.Module:
    """Parse a module, without docstrings and without blocks for type checkers.

    Trees are not cached, because a hundred of them would slow down Python's garbage collector.
    """
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"no source of module {module!r}", name=module)
    tree = ast.parse(path.read_bytes())
    tree.body = _executed(tree.body)
    return tree


def _text(tree: ast.AST) -> str:
    """Write a syntax tree as text, the same in all versions of Python: results move between them."""
    return ast.dump(tree, **_WRITTEN)


def _executed(statements: list[Any]) -> list[Any]:
    """Return a block without statements that have no effect, and without empty fields of later versions of Python."""
    kept: list[ast.AST] = []
    for node in statements:
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            continue
        if not getattr(node, "type_params", True):
            del node.type_params  # a field since Python 3.12
        for name in _BLOCKS:
            if block := getattr(node, name, None):
                setattr(node, name, _executed(block))
        test = node.test if isinstance(node, ast.If) else None
        name = getattr(test, "attr", getattr(test, "id", ""))
        kept += node.orelse if name == "TYPE_CHECKING" else [node]
    return kept


def _imports(tree: ast.AST) -> set[str]:
    """Find the modules of this package that a syntax tree imports anywhere."""
    imported: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for name in _BLOCKS:
            waiting += getattr(node, name, ())
        if isinstance(node, ast.Import):
            # The statement binds the outermost package, whose members may be used by their dotted names.
            for names in (alias.name.split(".") for alias in node.names):
                imported.update(".".join(names[:end]) for end in range(1, len(names) + 1))
        elif isinstance(node, ast.ImportFrom) and node.module and _is_inside(node.module):
            for member in (f"{node.module}.{alias.name}" for alias in node.names):
                imported.add(member if _path(member) else node.module)
    return {module for module in imported if _is_inside(module)}


@cache
def _path(module: str) -> Path | None:
    """Find the source file of a module without importing it. None if it is compiled or no module."""
    outermost, *inner = module.split(".")
    spec = importlib.util.find_spec(outermost)
    if spec is None:
        return None
    candidates = []
    for place in (Path(folder, *inner) for folder in spec.submodule_search_locations or ()):
        candidates += [place / "__init__.py", place.with_name(f"{place.name}.py")]
    if not (inner or candidates) and spec.has_location:
        candidates = [Path(str(spec.origin))]
    return next((file for file in candidates if file.suffix == ".py" and file.is_file()), None)
