"""Hash of the code that a command runs, so that an edit reruns exactly what depends on it.

Snakemake does not notice an edit in an imported module. Each rule carries this hash as a parameter: it covers the
syntax trees, without docstrings and comments, of the command's function and of every module of the package that the
function reaches by imports.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
from functools import cache
from pathlib import Path

_PACKAGE = "leakbound"
_COMMANDS = f"{_PACKAGE}.cli"
# What these decide reaches a job as a parameter or by the choice of a module, which is hashed itself.
_SETTLED_BEFORE = {
    f"{_PACKAGE}.{name}" for name in ("config", "presets", "studies", "registry", "fingerprint", "tracking")
}


def code_fingerprint(command: str, *modules: str) -> str:
    """Fingerprint of a command of the command line.

    Args:
        command: ``"module:function"`` of the command line; what the function uses there counts, and what that imports.
        *modules: Further modules that the command will look up by name, e.g. that of a registered model. One outside
            the package is hashed alone, without its own imports.

    Returns:
        Sixteen hexadecimal digits.

    Raises:
        ModuleNotFoundError: If a module does not exist.
    """
    digest = hashlib.sha256()
    roots = set(modules)
    for node in _statements(*command.split(":")):
        digest.update(ast.dump(node).encode())
        roots.update(_imports(node))
    for name in sorted(_closure(frozenset(roots))):
        digest.update(f"{name}:{_module_hash(name)};".encode())
    return digest.hexdigest()[:16]


def _statements(module: str, function: str) -> list[ast.stmt]:
    """Top-level statements of the command line that a function uses, in its own module and in the modules beside it."""
    found: dict[tuple[str, int], ast.stmt] = {}
    waiting = [(module, function)]
    seen: set[tuple[str, str]] = set()
    while waiting:
        place = waiting.pop()
        if place in seen:
            continue
        seen.add(place)
        module, name = place
        node = _definitions(module).get(name)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{_COMMANDS}."):
            waiting.append((str(node.module), name))  # follow the name alone, not all that stands beside it
        elif node is not None:
            found[module, node.lineno] = node
            waiting += [(module, inner.id) for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    return [found[key] for key in sorted(found)]


@cache
def _definitions(module: str) -> dict[str, ast.stmt]:
    """Names that a module defines or imports at its top, and the statement of each."""
    definitions: dict[str, ast.stmt] = {}
    for node in _tree(module).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            definitions.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.ImportFrom | ast.Import):
            definitions.update({alias.asname or alias.name: node for alias in node.names})
    return definitions


def _closure(roots: frozenset[str]) -> set[str]:
    """Modules of the package reached from ``roots``, and the roots from outside it."""
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in reached or name in _SETTLED_BEFORE or _path(name) is None:
            continue
        inside = name == _PACKAGE or name.startswith(f"{_PACKAGE}.")
        if not inside and name not in roots:
            continue
        if not inside and _is_installed(name):
            continue
        reached.add(name)
        if inside:
            waiting += _imports(_tree(name))
    return reached


def _is_installed(name: str) -> bool:
    """Whether a module from outside belongs to an installed package, whose version provenance records."""
    path = _path(name)
    return path is None or "site-packages" in path.parts or "lib-dynload" in path.parts or _is_standard(name)


def _is_standard(name: str) -> bool:
    """Whether a module belongs to Python itself."""
    return name.partition(".")[0] in sys.stdlib_module_names


def _imports(tree: ast.AST) -> list[str]:
    """Modules that a syntax tree may import: each dotted name, its packages, and members that may be modules."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    packages = {".".join(name.split(".")[:end]) for name in names for end in range(1, name.count(".") + 1)}
    return sorted(names | packages)


@cache
def _path(module: str) -> Path | None:
    """Source file of a module, or none if the name is not one."""
    try:
        spec = importlib.util.find_spec(module) if "." not in module else _nested_spec(module)
    except (ModuleNotFoundError, ValueError):
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _nested_spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Spec of a submodule found beside its package's source, without importing the package."""
    parent, _, name = module.rpartition(".")
    package = _path(parent)
    if package is None or package.name != "__init__.py":
        return None
    for candidate in (package.parent / f"{name}.py", package.parent / name / "__init__.py"):
        if candidate.is_file():
            return importlib.util.spec_from_file_location(module, candidate)
    return None


@cache
def _tree(module: str) -> ast.Module:
    """Syntax tree of a module without docstrings; comments are no part of a tree."""
    path = _path(module)
    if path is None:
        raise ModuleNotFoundError(f"no source of module {module!r}", name=module)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and any(_is_text(statement) for statement in body):
            node.body = [part for part in body if not _is_text(part)] or [ast.Pass()]  # type: ignore[attr-defined]
    return tree


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is a bare string."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def _module_hash(module: str) -> str:
    """Hash of a module's syntax tree."""
    return hashlib.sha256(ast.dump(_tree(module)).encode()).hexdigest()
