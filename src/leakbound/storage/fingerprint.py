"""Hash of the code that a command runs, so that an edit reruns exactly what depends on it.

Snakemake does not notice an edit in an imported module. Each rule carries this hash as a parameter: it covers the
syntax trees, without docstrings and comments, of the command's function and of every module of the package that the
function reaches by imports.

A package's ``__init__`` that merely re-exports does not count as a whole. ``from package import name`` reaches the
module that defines the name, and the statement that says which one it is. Any other statement in an ``__init__`` makes
it and all that it imports count, and modules that do something when they are imported count wherever their package is
imported.
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
    f"{_PACKAGE}.{name}"
    for name in (
        "config.reading",
        "config.messages",
        "config.checks",
        "jobs.table",
        "registry",
        "storage.fingerprint",
        "tracking",
    )
}
_STARS = "*"
_PLAIN_DECORATORS = {"cache", "contextmanager", "dataclass", "lru_cache", "no_grad", "overload", "runtime_checkable"}


@cache
def code_fingerprint(command: str, *modules: str) -> str:
    """Fingerprint of a command of the command line.

    Args:
        command: ``"module:function"`` of the command line; what the function uses there counts, and what that imports.
        *modules: Further modules, or ``"module:attribute"`` of things in them, that the command will look up by name,
            e.g. a registered model. One outside the package is hashed alone, without its own imports.

    Returns:
        Sixteen hexadecimal digits. Files are read once in a process.

    Raises:
        ModuleNotFoundError: If a module does not exist.
    """
    digest = hashlib.sha256()
    targets = set(modules)
    for node in _statements(*command.split(":")):
        digest.update(ast.dump(node).encode())
        targets.update(_imports(node))
    named = frozenset(name.partition(":")[0] for name in modules)
    for name, value in sorted(_closure(frozenset(targets), named).items()):
        digest.update(f"{name}:{value};".encode())
    return digest.hexdigest()[:16]


def _statements(module: str, function: str) -> list[ast.stmt]:
    """Top-level statements of the command line that a function uses, in its own module and in the modules beside it."""
    found: dict[tuple[str, int, str], ast.stmt] = {}
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
        elif isinstance(node, ast.ImportFrom):
            own = [alias for alias in node.names if (alias.asname or alias.name) == name]
            found[module, node.lineno, name] = ast.ImportFrom(module=node.module, names=own, level=node.level)
        elif node is not None:
            found[module, node.lineno, ""] = node
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


def _closure(targets: frozenset[str], named: frozenset[str]) -> dict[str, str]:
    """Modules of the package that ``targets`` reach, and the named ones from outside it, each with its hash.

    A followed re-export is there too, as ``package:name`` with the statement's own words, so that it counts when a name
    comes to mean something else that is reached anyway.
    """
    reached: dict[str, str] = {}
    waiting = list(targets)
    while waiting:
        target = waiting.pop()
        module, _, name = target.partition(":")
        if target in reached or module in _SETTLED_BEFORE or _path(module) is None:
            continue
        if not _is_inside(module):
            if module in named and not _is_installed(module):
                reached[module] = _module_hash(module)
            continue
        for end in range(1, module.count(".") + 1):
            waiting += _touched(".".join(module.split(".")[:end]))
        origins = _origins(module, name) if name else None
        if origins is None:
            waiting += [f"{module}.{name}"] if name else []  # the name may be that of a module
            if module not in reached:
                reached[module] = _module_hash(module)
                waiting += _module_imports(module)
        else:
            reached[target] = ",".join(origins)
            waiting += [*_touched(module), *origins]
    return reached


def _is_inside(module: str) -> bool:
    """Whether a module belongs to this package."""
    return module == _PACKAGE or module.startswith(f"{_PACKAGE}.")


def _touched(package: str) -> list[str]:
    """What counts when anything in a package is imported, which runs its ``__init__``."""
    return [package] if _exports(package) is None else _effects(package)


def _origins(module: str, name: str) -> list[str] | None:
    """Where a name of a package comes from, as targets; none if the package or module counts as a whole."""
    exports = _exports(module)
    if exports is None or name == _STARS:
        return None
    found = [exports[name]] if name in exports else []
    if _path(f"{module}.{name}") is not None:
        found.append(f"{module}.{name}")
    return found or None


@cache
def _exports(package: str) -> dict[str, str] | None:
    """Names that a package's ``__init__`` takes over, each with its ``module:name``.

    None if the module is no package, or its ``__init__`` holds anything but whole imports of names from modules of this
    package, and ``__all__``.
    """
    path = _path(package)
    if path is None or path.name != "__init__.py":
        return None
    exports: dict[str, str] = {}
    for node in _tree(package).body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, ast.ImportFrom) and not node.level and _is_inside(str(node.module)):
            if any(alias.name == _STARS for alias in node.names):
                return None
            exports |= {alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names}
        elif not (_is_list_of_names(node) or isinstance(node, ast.Pass)):
            return None
    return exports


def _is_list_of_names(node: ast.stmt) -> bool:
    """Whether a statement gives ``__all__`` as literal strings."""
    if not (isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__all__"]):
        return False
    values = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
    return all(isinstance(value, ast.Constant) and isinstance(value.value, str) for value in values)


@cache
def _effects(package: str) -> list[str]:
    """Modules that importing a package runs and that do more than define things."""
    waiting, seen = [package], set[str]()
    while waiting:
        module = waiting.pop().partition(":")[0]
        if module in seen or not _is_inside(module) or module in _SETTLED_BEFORE or _path(module) is None:
            continue
        seen.add(module)
        for target in _module_imports(module):
            outer, _, name = target.partition(":")
            waiting += [outer, f"{outer}.{name}"] if name else [outer]
    return sorted(module for module in seen if _exports(module) is None and not _only_defines(_tree(module).body))


def _only_defines(body: list[ast.stmt]) -> bool:
    """Whether statements bind names of their own and do nothing else that could be seen from outside."""
    for node in body:
        if isinstance(node, ast.If):
            harmless = _only_defines(node.body) and _only_defines(node.orelse)
        elif isinstance(node, ast.Assign):
            harmless = all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
        elif isinstance(node, ast.AnnAssign):
            harmless = isinstance(node.target, ast.Name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            harmless = all(_is_plain(decorator) for decorator in node.decorator_list)
        else:
            harmless = isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)
        if not harmless:
            return False
    return True


def _is_plain(decorator: ast.expr) -> bool:
    """Whether a decorator is known to keep no record of what it decorates."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(function, "attr", getattr(function, "id", "")) in _PLAIN_DECORATORS


def _is_installed(name: str) -> bool:
    """Whether a module from outside belongs to an installed package, whose version provenance records."""
    path = _path(name)
    return path is None or "site-packages" in path.parts or "lib-dynload" in path.parts or _is_standard(name)


def _is_standard(name: str) -> bool:
    """Whether a module belongs to Python itself."""
    return name.partition(".")[0] in sys.stdlib_module_names


def _imports(tree: ast.AST) -> list[str]:
    """What a syntax tree imports when it runs: a module, or ``module:name`` for a name from it; sorted."""
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse  # what stands there for type checkers never runs
            continue
        if isinstance(node, ast.Import):
            # The statement binds the outermost package, whose members may be used by their dotted names.
            parts = [alias.name.split(".") for alias in node.names]
            found.update(".".join(part[:end]) for part in parts for end in range(1, len(part) + 1))
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update(f"{node.module}:{alias.name}" for alias in node.names)
        waiting += ast.iter_child_nodes(node)
    return sorted(found)


@cache
def _module_imports(module: str) -> list[str]:
    """What a module imports, as :func:`_imports` says it."""
    return _imports(_tree(module))


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
