"""Verification of results: files that differ from their seals, or were made by other settings."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leakbound import storage
from leakbound.config.messages import shown

_UNSEALED = {"logs", "benchmarks"}
_OWN_DIGEST = "checkpoint-*.pt"


@dataclass(frozen=True)
class Finding:
    """A file that differs from its seal, or lacks one.

    Attributes:
        path: The file. For a stale seal, the seal.
        kind: ``damaged``, ``outdated`` if other settings made it, ``unsealed`` for a file without a seal, or
            ``stale`` for a seal without a file.
        reason: Description of the fault.
    """

    path: Path
    kind: Literal["damaged", "outdated", "unsealed", "stale"]
    reason: str


def findings(root: Path, files: Iterable[Path], settings: Mapping[Path, Any]) -> list[Finding]:
    """List the files below ``root`` that are damaged, outdated or unsealed, and seals without a file.

    Args:
        root: Folder of the configuration's results.
        files: Files to check.
        settings: Provenance of a job to the settings that it should state.
    """
    faults = (_examined(path, settings.get(path)) for path in files)
    return [*filter(None, faults), *_stale(root)]


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


def _examined(path: Path, settings: Any) -> Finding | None:
    """Return the fault of a file, None if it has none. Settings are those that it should state, if any."""
    if not storage.seal_of(path).is_file():
        return Finding(
            path,
            "unsealed",
            "no checksum file, so its integrity cannot be verified; if a job made it, delete it",
        )
    try:
        storage.check(path)
        recorded = storage.read_json(path).get("settings") if settings else None
    except storage.DamagedFileError as error:
        return Finding(path, "damaged", error.reason)
    others = "; ".join(_differences(recorded, settings)) if recorded else ""
    return Finding(path, "outdated", f"other settings made it: {others}") if others else None


def _differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield the values that differ between the settings of a result and those of the configuration."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from _differences(before.get(name), now.get(name), f"{place}.{name}" if place else name)
    elif before != now:
        yield f"{place} was {shown(before)}, is {shown(now)}"


def _stale(root: Path) -> Iterator[Finding]:
    """Yield the seals of files that no longer exist."""
    for seal in sorted(root.rglob(".*")):
        path = storage.sealed_by(seal)
        if path is not None and not path.exists():
            yield Finding(seal, "stale", "its file is gone")
