"""The shape of the house, read from the source; pyproject.toml holds the floors as import-linter's contracts."""

import ast
import logging.config
import re
import subprocess
import sys
from functools import cache
from itertools import chain
from pathlib import Path

import grimp
import networkx as nx
from importlinter.cli import lint_imports

from leakbound_lab.jobs.paths import OUTPUTS

ROOT = Path(__file__).parents[1]
PACKAGES = ("leakbound", "leakbound_lab")
MODULES = {
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / "src" / package).rglob("*.py"))
}
TORCH_FREE = (
    *(f"leakbound.{room}" for room in ("accounting", "records", "registry", "storage", "words", "moved")),
    *("leakbound.randomness.seeding", "leakbound.commands.command_line"),
    *(
        f"leakbound_lab.{room}"
        for room in ("claims", "config", "datasets", "figures", "jobs", "registries", "tracking")
    ),
    *("leakbound_lab.attacks.metrics", "leakbound_lab.papers.wang2020", "leakbound_lab.papers.zeng2022"),
    *(f"leakbound_lab.papers.pmidp.{name}" for name in ("noise_calibration", "run_tables")),
    *(
        f"leakbound_lab.papers.tan2024.{name}"
        for name in ("closed_forms", "covariance_leaks", "needs", "noisy_pictures")
    ),
    *(f"leakbound_lab.commands.{name}" for name in ("plan", "table")),
    *(f"leakbound_lab.steps.{name}" for name in OUTPUTS),
    "leakbound_lab.steps.results",
)
PLAIN_DECORATORS = {
    *(
        "cache",
        "contextmanager",
        "dataclass",
        "in_full_precision",
        "side_by_side_networks",
        "lru_cache",
        "no_grad",
        "overload",
        "plot",
    ),
    "runtime_checkable",
}


@cache
def trees() -> dict[str, ast.Module]:
    """Module to its syntax."""
    return {module: ast.parse(path.read_bytes()) for module, path in MODULES.items()}


def test_floors_and_forbidden_imports_are_kept(capsys, monkeypatch):
    monkeypatch.setattr(logging.config, "dictConfig", lambda _: None)  # it would silence loggers of tests to come
    assert lint_imports(str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True) == 0, capsys.readouterr().out


def test_no_two_modules_import_each_other_in_a_circle():
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    assert graph.modules == set(MODULES)
    arrows = [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]
    assert list(nx.simple_cycles(nx.DiGraph(arrows))) == []


def test_imports_name_their_module_in_full():
    for module, tree in trees().items():
        relative = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level]
        assert not relative, f"{module} imports relatively: write the whole name"


def test_rooms_without_torch_load_without_torch():
    free = [name for name in MODULES if f"{name}.".startswith(tuple(f"{room}." for room in TORCH_FREE))]
    script = "import importlib, sys\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    script += "    if 'torch' in sys.modules: sys.exit(f'{name} loads torch')"
    done = subprocess.run([sys.executable, "-c", script, *free], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_formatter_decides_the_shape_of_every_line():
    assert [module for module, path in MODULES.items() if "fmt: skip" in path.read_text(encoding="utf-8")] == []


def test_a_defense_is_asked_for_facts_and_not_for_its_type():
    """Except where its settings are checked."""
    classes = {node.name for node in trees()["leakbound_lab.config.defenses"].body if isinstance(node, ast.ClassDef)}
    asking = {
        module
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance"
        if re.search(r"\bdefense(?!s\b)", ast.unparse(node.args[0]))
        or classes & {*re.findall(r"\w+", ast.unparse(node.args[1]))}
    }
    assert asking == {"leakbound_lab.config.checks", "leakbound_lab.config.defenses"}


def acts(body: list[ast.stmt]) -> bool:
    """True if statements do more than bind names of their own, so that others could see that they ran."""
    for node in body:
        match node:
            case ast.If():
                harmless = not acts([*node.body, *node.orelse])
            case ast.Try():
                harmless = not acts([*node.body, *chain(*(one.body for one in node.handlers)), *node.orelse])
            case ast.Assign():
                harmless = all(isinstance(target, ast.Name | ast.Tuple) for target in node.targets)
            case ast.AnnAssign():
                harmless = isinstance(node.target, ast.Name)
            case ast.FunctionDef() | ast.ClassDef():
                harmless = all(is_plain(decorator) for decorator in node.decorator_list)
            case ast.Expr():
                harmless = isinstance(node.value, ast.Constant)
            case _:
                harmless = isinstance(node, ast.Import | ast.ImportFrom | ast.Pass)
        if not harmless:
            return True
    return False


def is_plain(decorator: ast.expr) -> bool:
    """True if a decorator is known to keep no record of what it decorates."""
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return getattr(function, "attr", getattr(function, "id", "")) in PLAIN_DECORATORS


def test_no_module_does_more_than_define_things_when_it_is_imported():
    """So the code fingerprint may leave out modules that are imported without being used."""
    allowed = {"leakbound", "leakbound.commands.command_line"}  # old paths; no job's fingerprint holds the other
    assert {module for module, tree in trees().items() if acts(tree.body)} == allowed


def test_packages_hold_exports_alone():
    """So the code fingerprint may leave out the ``__init__`` of a package whose modules are imported by their names."""
    for module, path in MODULES.items():
        if path.name == "__init__.py" and module not in PACKAGES:
            for node in trees()[module].body:
                text = ast.unparse(node)
                export = isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                    ("leakbound.", "leakbound_lab.")
                )
                plain = export and "import *" not in text
                assert plain or text.startswith("__all__ = ") or isinstance(node, ast.Expr), f"{module}: {text}"
