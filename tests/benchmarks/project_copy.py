"""A copy of the project that may be edited, run and killed, whatever happens to the original meanwhile."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NEEDED = ("src", "workflow", "profiles", "config", "environment.yml")
"""All that a run reads of the project."""


def copied_project(folder: Path) -> Path:
    """Copy what the workflow needs into a folder that is empty or does not exist yet; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.egg-info"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Variables with which the code of a copy runs, in its jobs too."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {  # a copy may keep its bytecode: each of a hundred jobs would compile the package again
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(folder / "src"),
        "XDG_CACHE_HOME": str(folder / ".cache"),
    }
