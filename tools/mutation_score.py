"""Mutation scores of the rooms that bounds and verdicts rest on, by mutmut, over all mutants or a sample of each room.

``python tools/mutation_score.py --sample 200`` draws mutants, lets mutmut run those without a result, and prints for
each room a score with its 95 % interval, then the mutants that no test noticed. docs/contributing.md says how to
install mutmut. What changes nothing but words is left out: a text that holds a space. (Texts of errors are left out by
the ``raise`` in mutmut's own settings, ``[tool.mutmut]`` in pyproject.toml.)
"""

import argparse
import ast
import itertools
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scipy.stats import binomtest

MUTANTS = Path("mutants/src")
ROOMS = ("accounting", "channels", "claims")
SURVIVED, UNTESTED = 0, 33  # codes that mutmut keeps for a mutant; None: not run yet; any other one: noticed


def functions(path: Path) -> dict[str, ast.AST]:
    """Originals and mutants in a file that mutmut wrote, by name."""
    found = ast.walk(ast.parse(path.read_text()))
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name}


def differences(one: object, other: object) -> Iterator[tuple[object, object]]:
    """Smallest parts of two syntax trees in which they differ, names of functions aside."""
    if isinstance(one, ast.AST) and type(one) is type(other):
        for field in one._fields:
            if not (isinstance(one, ast.FunctionDef) and field == "name"):
                yield from differences(getattr(one, field, None), getattr(other, field, None))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        yield from itertools.chain.from_iterable(map(differences, one, other))
    elif one != other or isinstance(one, ast.AST):
        yield one, other


def only_words(original: ast.AST, mutant: ast.AST) -> bool:
    """True if nothing differs but texts that hold a space."""
    return all(
        isinstance(before, str) and isinstance(after, str) and " " in before
        for before, after in differences(original, mutant)
    )


def mutants(room: str) -> dict[str, int | None]:
    """Mutants of a room that change more than words, with the code that mutmut keeps for each."""
    found: dict[str, int | None] = {}
    for meta in sorted(MUTANTS.glob(f"leakbound*/{room}/*.meta")):
        nodes = functions(meta.with_suffix(""))
        for name, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            mutant = name.rpartition(".")[2]
            original = mutant.rpartition("__mutmut_")[0] + "__mutmut_orig"
            if not only_words(nodes[original], nodes[mutant]):
                found[name] = code
    return found


def drawn(sample: int | None, seed: int) -> dict[str, list[str]]:
    """Names of mutants of each room: all, or so many at random."""
    found = {}
    for room in ROOMS:
        names = list(mutants(room))
        if sample is not None and sample < len(names):
            names = random.Random(f"{seed} {room}").sample(names, sample)
        found[room] = names
    return found


def report(chosen: dict[str, list[str]]) -> Iterator[str]:
    """Lines of the table, then the mutants that no test noticed."""
    unnoticed: list[str] = []
    yield f"{'room':12}{'mutants':>9}{'run':>6}{'killed':>8}  score  95 % interval"
    for room, names in chosen.items():
        codes = mutants(room)
        run = [name for name in names if codes[name] is not None]
        lived = [name for name in run if codes[name] in (SURVIVED, UNTESTED)]
        unnoticed += lived
        test = binomtest(len(run) - len(lived), max(len(run), 1))
        low, high = test.proportion_ci()
        yield f"{room:12}{len(codes):9}{len(run):6}{test.k:8}  {test.statistic:5.1%}  [{low:.1%}, {high:.1%}]"
    yield from unnoticed


def main() -> int:
    """Run what was drawn and has no result, and print the report; the code is mutmut's."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, help="mutants of each room; all if not given")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--again", action="store_true", help="run survivors again, after tests have changed")
    asked = parser.parse_args()
    if not MUTANTS.exists():
        subprocess.run(["mutmut", "run", "no mutant of this name"], stdout=subprocess.DEVNULL, check=False)
    chosen = drawn(asked.sample, asked.seed)
    codes = {name: code for room in ROOMS for name, code in mutants(room).items()}
    due = {None, *((SURVIVED, UNTESTED) if asked.again else ())}
    names = [name for room in chosen.values() for name in room if codes[name] in due]
    done = subprocess.run(["mutmut", "run", "--max-children", "1", *names], check=False) if names else None
    print("\n".join(report(chosen)))
    return done.returncode if done else 0


if __name__ == "__main__":
    sys.exit(main())
