"""The examples run as they are, and without their marked lines they are plain scripts."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MARK = "# leakbound"
SCRIPTS = sorted(path.name for path in EXAMPLES.glob("*.py"))


def lines(name: str) -> tuple[str, str]:
    """An example, and what is left of it without its marked lines."""
    text = (EXAMPLES / name).read_text()
    return text, "\n".join(line for line in text.splitlines() if not line.endswith(MARK))


def run(text: str, *words: str):
    names: dict = {"__name__": "example"}
    exec(compile(text, "example", "exec"), names)
    return names["main"](list(words))


def bound(printed: str) -> float:
    """Nats of the smallest valid bound that an account prints."""
    (told,) = (line for line in printed.splitlines() if line.startswith("smallest valid bound"))
    return float(told.split()[3])


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_example_needs_at_most_five_lines_more_and_one_for_a_server(name):
    text, plain = lines(name)
    assert 1 <= len(text.splitlines()) - len(plain.splitlines()) <= 5 + ("server_app" in plain)
    brought = {"leakbound", "engine", "ChannelEngine", "Channel", "ChannelCallback", "ChannelMod", "largest_leakage"}
    assert not {node.id for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Name)} & brought


def test_the_cnn_learns_within_its_bound(capsys):
    text, plain = lines("pytorch_cnn.py")
    undefended = run(plain, "--epochs", "3")
    defended = run(text, "--epochs", "3", "--nats", "60")
    assert 0.7 < defended < undefended + 0.05
    assert 60 < bound(capsys.readouterr().out) <= 60 + 2.303  # labels on top


@pytest.mark.filterwarnings("ignore")
def test_lightning_learns_within_its_bound_and_logs_it():
    pytest.importorskip("lightning", reason="Lightning is no dependency: run `make test-frameworks`")
    text, plain = lines("lightning_cnn.py")
    undefended = run(plain, "--epochs", "2")
    defended = run(text, "--epochs", "2", "--nats", "60")
    assert 0.5 < defended["accuracy"] < undefended["accuracy"] + 0.05
    assert 60 < defended["leakage_nats"] <= 60 + 2.303
    assert "leakage_nats" not in undefended


@pytest.mark.filterwarnings("ignore")
def test_a_transformer_is_fine_tuned_within_its_bound(capsys):
    pytest.importorskip("transformers", reason="transformers is no dependency: run `make test-frameworks`")
    text, plain = lines("huggingface_finetuning.py")
    undefended = run(plain, "--epochs", "6")
    defended = run(text, "--epochs", "6", "--nats", "100")
    assert min(undefended, defended) > 0.4  # chance is 0.1
    assert 100 < bound(capsys.readouterr().out) <= 100 + 2.303
