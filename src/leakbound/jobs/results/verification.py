"""Verification of results: files that differ from their seals."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leakbound import storage
from leakbound.jobs.paths import OUTPUTS

_UNSEALED = {"logs", "benchmarks"}
_OWN_DIGEST = "checkpoint-*.pt"


@dataclass(frozen=True)
class Finding:
    """A file that differs from its seal, or lacks one.

    Attributes:
        path: The file. For a stale seal, the seal.
        kind: ``damaged``, ``unsealed`` for a file without a seal, or ``stale`` for a seal without a file.
        reason: Description of the fault.
    """

    path: Path
    kind: Literal["damaged", "unsealed", "stale"]
    reason: str


def findings(root: Path, files: Iterable[Path]) -> list[Finding]:
    """List the files below ``root`` that are damaged or unsealed, and seals without a file.

    Args:
        root: Folder of the configuration's results.
        files: Files to check.
    """
    return [*(finding for path in files if (finding := _examined(path, root))), *_stale(root)]


def sealed_files(root: Path) -> Iterator[Path]:
    """Yield the files that are sealed when they are written, in order.

    Args:
        root: Folder of the configuration's results.
    """
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        ours = inside.parts[0] not in _UNSEALED and not path.match(_OWN_DIGEST)
        if ours and path.is_file() and not path.name.startswith("."):
            yield path


def _examined(path: Path, root: Path) -> Finding | None:
    """Return the fault of a file, None if it has none."""
    if not storage.seal_of(path).is_file():
        return Finding(
            path,
            "unsealed",
            "no checksum file, so its integrity cannot be verified; if a job made it, delete it",
        )
    try:
        storage.check(path)
        owner = _owner(path, root)
    except storage.DamagedFileError as error:
        return Finding(path, "damaged", error.reason)
    return Finding(path, "damaged", f"its folder is that of {owner}, moved here") if owner else None


def _owner(path: Path, root: Path) -> str | None:
    """Return the run of a provenance in the folder of another run, as after a folder was moved with its seals."""
    for step, name in (("train", "(.+)"), ("references", "(.+)"), ("attack", "(.+)/[^/]+")):
        form = re.escape(OUTPUTS[step]["provenance"]).replace(r"\{name\}", name)
        if place := re.fullmatch(form, path.relative_to(root).as_posix()):
            slug = storage.read_json(path).get("settings", {}).get("slug")
            return slug if slug not in (None, place[1]) else None
    return None


def _stale(root: Path) -> Iterator[Finding]:
    """Yield the seals of files that no longer exist."""
    for seal in sorted(root.rglob(".*")):
        path = storage.sealed_by(seal)
        if path is not None and not path.exists():
            yield Finding(seal, "stale", "its file is gone")
