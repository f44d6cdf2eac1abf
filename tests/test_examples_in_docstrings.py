"""Examples in docstrings run as written, and every name that ``leakbound`` exports has one."""

import ast
import doctest
import importlib
from pathlib import Path

import pytest

import leakbound

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
OPTIONAL = {"flwr", "lightning", "pytorch_lightning"}  # frameworks with environments of their own
PUBLIC = sorted(set(leakbound.__all__) - {"__version__"})


def modules_with_examples() -> list[str]:
    """Names of the modules that hold a line with a prompt."""
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")]
    names = (".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths)
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_run_as_written(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} has an environment of its own")
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    report: list[str] = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module):
        runner.run(example, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_exported_name_has_an_example(name):
    text = getattr(leakbound, name).__doc__ or ""
    assert "Example:\n" in text, f"{name}: show its use in an Example: of its docstring"
    assert doctest.DocTestParser().get_examples(text)


def test_examples_are_below_their_heading():
    """A prompt without a heading is shown as text by the site, and not as an example."""
    missing = [
        f"{path.relative_to(SOURCE)}: {node.name}"
        for path in sorted(SOURCE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and ">>> " in (text := ast.get_docstring(node) or "")
        and "Example:\n" not in text
    ]
    assert missing == []
