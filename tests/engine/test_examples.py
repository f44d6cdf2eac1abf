"""The examples run as they are, and without their marked lines they are plain scripts."""

import ast
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = "# leakbound"


def run(text: str, *words: str) -> float:
    names: dict = {"__name__": "example"}
    exec(compile(text, "example", "exec"), names)
    return names["main"](list(words))


def test_the_cnn_needs_five_lines_more_and_learns_within_its_bound(capsys):
    lines = (EXAMPLES / "pytorch_cnn.py").read_text().splitlines()
    plain = "\n".join(line for line in lines if not line.endswith(MARK))
    assert len(lines) - len(plain.splitlines()) <= 5
    assert not any(isinstance(node, ast.Name) and node.id == "leakbound" for node in ast.walk(ast.parse(plain)))
    undefended = run(plain, "--epochs", "3")
    defended = run("\n".join(lines), "--epochs", "3", "--nats", "60")
    assert 0.7 < defended < undefended + 0.05
    (bound,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("smallest valid bound"))
    assert 60 < float(bound.split()[3]) <= 60 + 2.303  # labels on top
