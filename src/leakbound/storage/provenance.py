"""Provenance of results: code, configuration, data, device and versions."""

import hashlib
import json
import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from leakbound.storage.seals import file_hash

_PACKAGES = (
    "leakbound",
    "torch",
    "numpy",
    "scipy",
    "pandas",
    "opacus",
    "scikit-learn",
    "scikit-image",
    "snakemake",
)


def settings_hash(settings: Any) -> str:
    """Compute SHA-256 of plain values, independent of the order of their keys."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def commit() -> dict[str, Any]:
    """Return the Git commit of this package's source, and whether there are uncommitted changes.

    Where git does not track the source, they are what ``LEAKBOUND_COMMIT`` states: a commit, and the word
    ``dirty`` after it if the source has changed since. Both are None without it.
    """
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)
        return {"commit": _git("rev-parse", "HEAD"), "dirty": bool(_git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        stated, _, changed = os.environ.get("LEAKBOUND_COMMIT", "").partition(" ")
        return {"commit": stated or None, "dirty": bool(changed) if stated else None}


def _git(*words: str) -> str:
    """Run a git command in the package's folder and return its output."""
    return subprocess.run(
        ["git", "-C", str(Path(__file__).parent), *words], capture_output=True, text=True, check=True
    ).stdout.strip()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results depend on."""
    installed = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            installed[package] = _version(package)
    return installed


@cache
def _version(package: str) -> str:
    """Read the version of a package, once in a process: that of the code which is loaded."""
    return version(package)


def collect(settings: Any, *, inputs: dict[str, Path], device: str, seconds: float, **facts: Any) -> Any:
    """Collect the provenance record of one job.

    Args:
        settings: Plain values that the job depends on.
        inputs: Role to input file. Files are recorded by content hash, not by path.
        device: Name of the device.
        seconds: Wall time.
        **facts: Further plain values.
    """
    return {
        **commit(),
        "settings": settings,
        "settings_hash": settings_hash(settings),
        "inputs": {role: file_hash(path) for role, path in sorted(inputs.items())},
        "device": device,
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": versions(),
        "seconds": round(seconds, 3),
        **facts,
    }
