"""The floors of the house, read from the imports as they stand in the source."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
GROUND = {"locks", "scratch", "config", "registry", "storage", "seeding", "gaussian", "metrics", "fingerprint"}
MAY_IMPORT = {
    **{name: set() for name in GROUND},
    "scratch": {"locks"},
    "storage": {"scratch"},
    "coordination": GROUND,
    "provenance": GROUND,
    "randomness": GROUND,
    "mistakes": GROUND,
    "checks": GROUND | {"mistakes"},
    "presets": GROUND | {"mistakes", "checks"},
    "runs": GROUND,
    "studies": GROUND | {"runs"},
    "planning": GROUND | {"runs", "studies", "federated"},
    "datasets": GROUND | {"provenance"},
    "models": GROUND | {"provenance"},
    "channels": GROUND | {"provenance", "randomness"},
    "accounting": GROUND | {"provenance", "channels"},
    "training": GROUND | {"provenance", "randomness", "models", "channels", "datasets"},
    "attacks": GROUND
    | {"provenance", "randomness", "runs", "models", "channels", "accounting", "datasets", "training"},
    "measuring": GROUND | {"models", "channels", "datasets", "training", "attacks", "planning"},
    "illustrations": GROUND | {"channels", "accounting", "datasets"},
    "consensus": GROUND | {"randomness"},
    "federated": GROUND | {"provenance", "randomness", "models", "datasets", "training"},
    "integrations": GROUND | {"provenance", "randomness", "models", "datasets", "training", "federated"},
    "theory": GROUND,
    "figures": GROUND,
    "tracking": GROUND | {"provenance"},
}
TORCH_FREE = [
    *GROUND,
    "coordination",
    "provenance",
    "mistakes",
    "checks",
    "presets",
    "runs",
    "studies",
    "planning",
    "datasets",
    "accounting",
    "illustrations",
    "consensus",
    "theory",
    "figures",
    "tracking",
]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_of(module: str, *, at_start_only: bool = False) -> set[str]:
    """Modules that a module imports; those imported only for type checking do not count."""
    tree = ast.parse(MODULES[module].read_text())
    nodes = list(tree.body) if at_start_only else list(ast.walk(tree))
    unseen = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in nodes:
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports relatively: write the whole name"
            found |= {
                f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in MODULES else str(node.module)
                for alias in node.names
            }
    return found


def room(module: str) -> str:
    """Top-level part of the package that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def test_every_room_has_its_place_in_the_house():
    assert {room(module) for module in MODULES} - {"", "cli"} == set(MAY_IMPORT)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"leakbound"}))
def test_nothing_imports_upward(module):
    if room(module) == "cli":
        return
    reached = {room(name) for name in imports_of(module) if name.split(".")[0] == "leakbound"} - {"", room(module)}
    assert reached <= MAY_IMPORT[room(module)], f"{module} reaches {reached - MAY_IMPORT[room(module)]}"


def test_no_two_modules_import_each_other_in_a_circle():
    graph = {module: {name for name in imports_of(module) if name in MODULES} - {module} for module in MODULES}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail, module))
        if module not in done:
            for name in sorted(graph[module]):
                visit(name, (*trail, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_only_tracking_knows_mlflow_and_nothing_knows_snakemake():
    for module in MODULES:
        packages = {name.split(".")[0] for name in imports_of(module)}
        assert "snakemake" not in packages, module
        assert "mlflow" not in packages or room(module) == "tracking", module


def test_only_the_command_line_imports_tracking():
    users = {room(module) for module in MODULES if "leakbound.tracking" in imports_of(module)}
    assert users <= {"cli", "tracking"}


@pytest.mark.parametrize("name", sorted(TORCH_FREE))
def test_rooms_without_torch_load_without_torch(name):
    seen: set[str] = set()
    waiting = [module for module in MODULES if room(module) == name]
    while waiting:
        module = waiting.pop()
        if module in seen:
            continue
        seen.add(module)
        loaded = imports_of(module, at_start_only=True)
        assert "torch" not in {name.split(".")[0] for name in loaded}, f"{name} loads torch through {module}"
        waiting += [name for name in loaded if name in MODULES]


def test_files_and_functions_stay_small():
    for module, path in MODULES.items():
        text = path.read_text()
        assert text.count("\n") <= 420, f"{module} is too long"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                length = (node.end_lineno or 0) - node.lineno + 1
                assert length <= 70, f"{module}.{node.name} has {length} lines"
