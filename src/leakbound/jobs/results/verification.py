"""Files of a configuration's results that are not as they were written."""

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
    """A file that is not as it was written.

    Attributes:
        path: The file; of a stale seal, the seal.
        kind: ``damaged``; ``unsealed`` if it has no seal; ``stale`` for a seal without a file.
        reason: What is wrong.
    """

    path: Path
    kind: Literal["damaged", "unsealed", "stale"]
    reason: str


def findings(root: Path, files: Iterable[Path]) -> list[Finding]:
    """Files below ``root`` that are damaged or unsealed, and seals without a file."""
    return [*(finding for path in files if (finding := _examined(path, root))), *_stale(root)]


def sealed_files(root: Path) -> Iterator[Path]:
    """Files that are sealed when they are written, in order."""
    for path in sorted(root.rglob("*")):
        inside = path.relative_to(root)
        ours = inside.parts[0] not in _UNSEALED and not path.match(_OWN_DIGEST)
        if ours and path.is_file() and not path.name.startswith("."):
            yield path


def _examined(path: Path, root: Path) -> Finding | None:
    """The fault of a file. None if it has none."""
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
    """The run whose provenance lies where that of another one belongs: a folder moved with its seals is whole."""
    for step, name in (("train", "(.+)"), ("references", "(.+)"), ("attack", "(.+)/[^/]+")):
        form = re.escape(OUTPUTS[step]["provenance"]).replace(r"\{name\}", name)
        if place := re.fullmatch(form, path.relative_to(root).as_posix()):
            slug = storage.read_json(path).get("settings", {}).get("slug")
            return slug if slug not in (None, place[1]) else None
    return None


def _stale(root: Path) -> Iterator[Finding]:
    """Seals of files that are gone."""
    for seal in sorted(root.rglob(".*")):
        path = storage.sealed_by(seal)
        if path is not None and not path.exists():
            yield Finding(seal, "stale", "its file is gone")
