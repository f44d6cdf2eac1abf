"""Size and shape of the house, counted from the source; ``python tests/yardstick.py`` prints it.

A room is a direct child of ``src/leakbound``, a folder or a file. An arrow leads from a room to one that it imports
anywhere, inside functions and for type checkers too. A room's floor is one more than the highest that it reaches.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "src" / "leakbound"
AT_MOST = {
    "rooms": 20,
    "floors": 6,
    "arrows": 80,
    "share of the biggest room, %": 15,
    "circles of rooms": 0,
    "lines of src": 41_000,
    "lines of workflow/rules": 450,
    "isinstance on a defense": 10,
}


def rooms() -> dict[str, list[Path]]:
    """Name of each room and its files."""
    found = {path.stem: sorted(path.rglob("*.py")) or [path] for path in sorted(HOUSE.iterdir())}
    return {name: files for name, files in found.items() if name != "__init__" and files[0].suffix == ".py"}


def arrows() -> nx.DiGraph:
    """Rooms, and an edge from each to those that it imports."""
    files = rooms()
    graph = nx.DiGraph()
    graph.add_nodes_from(files)
    for room in files:
        for node in (node for path in files[room] for node in ast.walk(ast.parse(path.read_bytes()))):
            names = [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            reached = {name.split(".")[1] for name in names if name.startswith("leakbound.")}
            graph.add_edges_from((room, other) for other in reached & files.keys() - {room})
    return graph


def lines(paths: list[Path]) -> int:
    """Lines of some files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


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
    graph = arrows()
    size = Counter({name: lines(files) for name, files in rooms().items()})
    circles = [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    floors = nx.dag_longest_path_length(nx.condensation(graph)) + 1
    total = lines(sorted(HOUSE.rglob("*.py")))
    return {
        "rooms": len(graph),
        "floors": floors,
        "arrows": graph.number_of_edges(),
        "share of the biggest room, %": round(100 * size.most_common(1)[0][1] / total, 1),
        "circles of rooms": len(circles),
        "lines of src": total,
        "lines of workflow/rules": lines(sorted((ROOT / "workflow" / "rules").glob("*.smk"))),
        "isinstance on a defense": len(asked_defenses()),
    }


def plan() -> str:
    """Rooms by floor, each with its lines and the rooms that it imports; those in a circle share a floor."""
    graph = arrows()
    groups = nx.condensation(graph)
    floor: dict[int, int] = {}
    for group in reversed(list(nx.topological_sort(groups))):
        floor[group] = 1 + max((floor[below] for below in groups.successors(group)), default=0)
    where = {room: floor[group] for room, group in groups.graph["mapping"].items()}
    size = {name: lines(files) for name, files in rooms().items()}
    ordered = sorted(graph, key=lambda room: (-where[room], room))
    return "\n".join(f"{where[room]}  {room:<12}{size[room]:>6}  {' '.join(sorted(graph[room]))}" for room in ordered)


if __name__ == "__main__":
    report = [f"{number:>8g}  of at most {AT_MOST[name]:>6}  {name}" for name, number in measure().items()]
    sys.stdout.write("\n".join([*report, "", plan(), ""]))
