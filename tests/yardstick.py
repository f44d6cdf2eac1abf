"""Size and shape of the house, counted from the source; ``python tests/yardstick.py`` prints it.

A room is a direct child of ``src/leakbound``, a folder or a file. An arrow leads from a room to one that it imports
anywhere, inside functions and for type checkers too. A room's floor is one more than the highest that it reaches.
Inside a room its folders, and the files that lie beside them, are rooms likewise. Code is counted in lines that the
syntax tree has when it is written out with one statement a line, without docstrings: packing lines does not make it
less.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "leakbound"
AT_MOST = {
    "rooms": 20,
    "floors": 6,
    "arrows": 75,
    "circles of rooms": 0,
    "circles of files": 0,
    "arrows inside attacks": 17,
    "floors inside attacks": 3,
    "lines of code": 23_230,
    "lines of workflow/rules": 450,
    "lines longer than 110 characters": 484,
    "assignments of several values at once": 142,
    "fmt: skip": 0,
    "file names in several rooms": 8,
    "public names defined in several files": 5,
    "functions of more than 15 branches": 0,
    "functions of more than 8 parameters": 3,
    "isinstance on a defense": 10,
}
LONG = 110
BRANCHES = 15
PARAMETERS = 8
_BRANCHES = (ast.If, ast.For, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)


def rooms() -> dict[str, list[Path]]:
    """Name of each room and its files."""
    found = {path.stem: sorted(path.rglob("*.py")) or [path] for path in sorted(HOUSE.iterdir())}
    return {name: files for name, files in found.items() if name != "__init__" and files[0].suffix == ".py"}


def imported(path: Path) -> set[str]:
    """Modules and names of the package that a file imports, inside functions and for type checkers too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("leakbound.")}


def arrows() -> nx.DiGraph:
    """Rooms, and an edge from each to those that it imports."""
    files = rooms()
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for room in files:
        reached = {name.split(".")[1] for path in files[room] for name in imported(path)}
        graph.add_edges_from((room, other) for other in reached & files.keys() - {room})
    return graph


def file_arrows() -> nx.DiGraph:
    """Modules, and an edge from each to those that it imports."""
    modules = {module_of(path): path for path in sorted(HOUSE.rglob("*.py"))}
    graph = nx.DiGraph()
    graph.add_nodes_from(modules)
    for module, path in modules.items():
        for name in imported(path):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules and target != module:
                graph.add_edge(module, target)
    return graph


def module_of(path: Path) -> str:
    """Dotted name of a file."""
    return ".".join(path.relative_to(HOUSE.parent).with_suffix("").parts).removesuffix(".__init__")


def arrows_inside(room: str) -> nx.DiGraph:
    """Folders of a room and files beside them, and an edge from each to those that it imports."""
    graph = nx.DiGraph()
    for module, target in file_arrows().edges:
        start, end = module.split("."), target.split(".")
        if min(len(start), len(end)) > 2 and start[1] == end[1] == room and start[2] != end[2]:
            graph.add_edge(start[2], end[2])
    return graph


def floors_of(graph: nx.DiGraph) -> int:
    """Number of floors: circles count as one room."""
    return nx.dag_longest_path_length(nx.condensation(graph)) + 1


def lines(paths: list[Path]) -> int:
    """Lines of some files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def without_docstrings(tree: ast.Module) -> ast.Module:
    """A tree without its docstrings and other bare texts; bodies that are empty then hold ``pass``."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_text(one)] or ([] if node is tree else [ast.Pass()])
    return tree


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_lines(paths: list[Path]) -> int:
    """Lines of code of some files, with one statement a line."""
    trees = (without_docstrings(ast.parse(path.read_bytes())) for path in paths)
    return sum(bool(line.strip()) for tree in trees for line in ast.unparse(tree).splitlines())


def branches(function: ast.FunctionDef) -> int:
    """Branches of a function: conditions, loops, handlers, cases, and conditions and loops of comprehensions."""
    nodes = list(ast.walk(function))
    inside = sum(1 + len(node.ifs) for node in nodes if isinstance(node, ast.comprehension))
    return inside + sum(isinstance(node, _BRANCHES) for node in nodes)


def parameters(function: ast.FunctionDef) -> int:
    """Parameters of a function, but for itself."""
    args = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return len([one for one in args if one.arg not in ("self", "cls")])


def functions() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function of the source, with its module."""
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.FunctionDef):
                yield f"{module_of(path)}.{node.name}", node


def with_many_parameters() -> list[str]:
    """Functions of many parameters, but for commands, of which each option is one."""
    commands = re.compile(r"leakbound\.cli\..*\.[a-z]\w*")
    return [name for name, node in functions() if parameters(node) > PARAMETERS and not commands.fullmatch(name)]


def packs() -> int:
    """Assignments of several values to several names in one statement, as in ``a, b = x, y``."""
    nodes = (node for path in HOUSE.rglob("*.py") for node in ast.walk(ast.parse(path.read_bytes())))
    assigned = (node for node in nodes if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple))
    return sum(isinstance(node.targets[0], ast.Tuple) for node in assigned)


def doubled_files() -> list[str]:
    """Names of files that lie in two rooms or more."""
    where: dict[str, set[str]] = {}
    for path in HOUSE.rglob("*.py"):
        if path.stem != "__init__":
            where.setdefault(path.stem, set()).add(path.relative_to(HOUSE).parts[0])
    return sorted(name for name, found in where.items() if len(found) > 1)


def doubled_names() -> list[str]:
    """Public names that two files or more define; a step of the command line may bear the name of what it calls."""
    where = Counter(
        node.name
        for path in HOUSE.rglob("*.py")
        if path.parent != HOUSE / "cli" / "steps"
        for node in ast.parse(path.read_bytes()).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, times in where.items() if times > 1)


def asked_defenses() -> list[str]:
    """Places that ask a defense for its type, or anything whether it is a defense."""
    tree = ast.parse((HOUSE / "config" / "defenses.py").read_bytes())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    found = []
    for path in sorted(HOUSE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                subject, kinds = ast.unparse(node.args[0]), set(re.findall(r"\w+", ast.unparse(node.args[1])))
                if re.search(r"\bdefense(?!s\b)", subject) or kinds & classes:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def measure() -> dict[str, float]:
    """Each number of the yardstick."""
    graph, inside = arrows(), arrows_inside("attacks")
    files = sorted(HOUSE.rglob("*.py"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    total = code_lines(files)
    return {
        "rooms": len(graph),
        "floors": floors_of(graph),
        "arrows": graph.number_of_edges(),
        "circles of rooms": len(circles(graph)),
        "circles of files": len(circles(file_arrows())),
        "arrows inside attacks": inside.number_of_edges(),
        "floors inside attacks": floors_of(inside),
        "lines of code": total,
        "lines of workflow/rules": lines(sorted((ROOT / "workflow" / "rules").glob("*.smk"))),
        "lines longer than 110 characters": sum(len(line) > LONG for line in text.splitlines()),
        "assignments of several values at once": packs(),
        "fmt: skip": text.count("fmt: skip"),
        "file names in several rooms": len(doubled_files()),
        "public names defined in several files": len(doubled_names()),
        "functions of more than 15 branches": sum(branches(node) > BRANCHES for _, node in functions()),
        "functions of more than 8 parameters": len(with_many_parameters()),
        "isinstance on a defense": len(asked_defenses()),
    }


def circles(graph: nx.DiGraph) -> list[set[str]]:
    """Groups that import each other."""
    return [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def plan() -> str:
    """Rooms by floor, each with its lines of code and the rooms that it imports; those in a circle share a floor."""
    graph = arrows()
    groups = nx.condensation(graph)
    floor: dict[int, int] = {}
    for group in reversed(list(nx.topological_sort(groups))):
        floor[group] = 1 + max((floor[below] for below in groups.successors(group)), default=0)
    where = {room: floor[group] for room, group in groups.graph["mapping"].items()}
    size = {name: code_lines(files) for name, files in rooms().items()}
    ordered = sorted(graph, key=lambda room: (-where[room], room))
    return "\n".join(f"{where[room]}  {room:<12}{size[room]:>6}  {' '.join(sorted(graph[room]))}" for room in ordered)


if __name__ == "__main__":
    report = [f"{number:>8g}  of at most {AT_MOST[name]:>6}  {name}" for name, number in measure().items()]
    sys.stdout.write("\n".join([*report, "", plan(), ""]))
