"""Folders that are replaced as a whole, but only if they contain nothing except what was written this way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakbound.storage import file_hash
from leakbound.storage.seals import neighbor

MANIFEST = "MANIFEST.sha256"
"""File that lists all others of such a folder, in the format of ``sha256sum``."""


class ForeignFolderError(ValueError):
    """A folder that may not be replaced, because some of its files would be lost."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"{folder}: {reason}, and it would be replaced. Name a folder that is missing, empty, or exactly as "
            f"leakbound left it (its {MANIFEST} says how); move whatever else it holds."
        )


def check_replaceable(folder: Path) -> None:
    """Refuse a folder unless it is missing, empty, or unchanged since it was written this way.

    Raises:
        ForeignFolderError: If it is a link or a file, or if a file in it differs from its manifest.
    """
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise ForeignFolderError(folder, "it is a link or a file")
    held = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    manifest = folder / MANIFEST
    if held and (manifest.is_symlink() or not manifest.is_file()):
        raise ForeignFolderError(folder, f"it holds {held[0].relative_to(folder)} and no {MANIFEST}")
    listed = manifest.read_text(encoding="utf-8", errors="replace").splitlines() if held else []
    for path in held:
        if path != manifest and (path.is_symlink() or _line(folder, path) not in listed):
            name = path.relative_to(folder)
            raise ForeignFolderError(folder, f"it holds {name}, which leakbound did not leave so")


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files of a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    (folder / MANIFEST).write_text("".join(f"{_line(folder, path)}\n" for path in files), encoding="utf-8")


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Make an empty folder that replaces ``folder`` if the block succeeds, and is removed if it fails.

    Raises:
        ForeignFolderError: As :func:`check_replaceable`.
    """
    folder = Path(os.path.abspath(folder))
    check_replaceable(folder)
    with neighbor(folder) as new:
        yield new
        write_manifest(new)
        check_replaceable(folder)  # it may have changed meanwhile
        if folder.exists():
            folder.rename(new.with_name("replaced"))
        new.rename(folder)


def _line(folder: Path, path: Path) -> str:
    """Write the line of the manifest for a file."""
    return f"{file_hash(path)}  {path.relative_to(folder).as_posix()}"
