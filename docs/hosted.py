"""Notebooks for a hosted service, from the pages of the documentation: ``python docs/hosted.py`` writes them again.

Each begins with a cell that installs the package, and needs nothing of the repository.
"""

import json
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
OUT = DOCS.parent / "examples" / "notebooks"
PAGES = sorted((DOCS / "notebooks").glob("*.md"))
INSTALL = """import importlib.util
import os

# LEAKBOUND_WHEEL: file or address of a wheel, as long as there is no release.
if importlib.util.find_spec("leakbound") is None:
    %pip install -q {os.environ.get("LEAKBOUND_WHEEL", "leakbound")} 'leakbound[workflow]'"""
_CELL = re.compile(r"^```\{code-cell\}[^\n]*\n(.*?)^```$", re.M | re.S)
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")  # to a page that is not there
_FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    """One cell of a notebook."""
    code = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {
        "cell_type": kind,
        "id": f"cell-{number}",
        "metadata": {},
        "source": text.strip("\n").splitlines(keepends=True),
        **code,
    }


def notebook(page: str) -> str:
    """Text of the notebook for a page.

    Args:
        page: MyST Markdown with code cells.
    """
    cells = [("code", INSTALL)]
    body, end = _FRONT.sub("", page), 0
    for found in _CELL.finditer(body):
        cells.append(("markdown", _LINK.sub(r"\1", body[end : found.start()])))
        code = "\n".join(line for line in found[1].splitlines() if not line.startswith(":tags:"))
        cells.append(("code", code))
        end = found.end()
    cells.append(("markdown", _LINK.sub(r"\1", body[end:])))
    kept = [_cell(kind, text, number) for number, (kind, text) in enumerate(cells) if text.strip()]
    about = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return json.dumps({"cells": kept, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


if __name__ == "__main__":
    OUT.mkdir(parents=True, exist_ok=True)
    for path in PAGES:
        (OUT / f"{path.stem}.ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")
