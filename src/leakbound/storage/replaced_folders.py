"""Folders that are replaced as a whole, but only if they contain nothing except what was written this way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakbound.storage.scratch import scratch, sweep
from leakbound.storage.seals import file_hash

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
    if folder.is_symlink():
        raise ForeignFolderError(folder, f"it is a link to {folder.readlink()}")
    if folder.exists() and not folder.is_dir():
        raise ForeignFolderError(folder, "it is a file")
    held = [path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir()]
    if not held:
        return
    manifest = folder / MANIFEST
    if manifest.is_symlink() or not manifest.is_file():
        raise ForeignFolderError(folder, f"it holds {held[0].relative_to(folder)} and no {MANIFEST}")
    listed = set(manifest.read_text(encoding="utf-8", errors="replace").splitlines())
    for path in held:
        if path != manifest and (
            path.is_symlink() or not path.is_file() or _line(folder, path) not in listed
        ):
            raise ForeignFolderError(
                folder, f"it holds {path.relative_to(folder)}, which leakbound did not leave so"
            )


def write_manifest(folder: Path) -> None:
    """Write the manifest of all files of a folder."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    (folder / MANIFEST).write_text("".join(f"{_line(folder, path)}\n" for path in files), encoding="utf-8")


@contextmanager
def _neighbor(folder: Path) -> Iterator[Path]:
    """Make an empty folder next to ``folder``, and remove it at the end unless it was moved away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with scratch(folder) as new:
        new.mkdir()
        yield new


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """Make an empty folder that replaces ``folder`` if the block succeeds, and is removed if it fails.

    The old folder is first moved to ``.NAME.before``. If the process is killed then, the next call moves it
    back.

    Raises:
        ForeignFolderError: As :func:`check_replaceable`.
    """
    folder = Path(os.path.abspath(folder))
    before = folder.with_name(f".{folder.name}.before")
    if before.is_dir() and not folder.exists():
        before.rename(folder)
    check_replaceable(folder)
    check_replaceable(before)
    with _neighbor(folder) as new:
        yield new
        write_manifest(new)
        check_replaceable(folder)  # it may have changed meanwhile
        # A killed process left it. Deleted only in part, it would no longer be accepted.
        if before.exists():
            before.rename(new.with_name("left"))
        if folder.exists():
            folder.rename(before)
        new.rename(folder)
        if before.exists():
            before.rename(new.with_name("replaced"))


def check_new(folder: Path) -> None:
    """Refuse a folder that exists already, unless it is empty.

    Raises:
        ValueError: If it is a link or a file, or holds anything.
    """
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise ValueError(
            f"{folder}: is there already. Name a folder that is missing or empty; nothing is overwritten."
        )


@contextmanager
def created(folder: Path) -> Iterator[Path]:
    """Make an empty folder that becomes ``folder`` if the block succeeds, and is removed if it fails.

    Everybody may read it. All of its files are flushed to disk before it gets its name.

    Raises:
        ValueError: As :func:`check_new`.
    """
    folder = Path(os.path.abspath(folder))
    check_new(folder)
    with _neighbor(folder) as new:
        yield new
        for path in filter(Path.is_file, new.rglob("*")):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        new.chmod(0o755)
        check_new(folder)  # it may have appeared meanwhile
        new.replace(folder)


def _line(folder: Path, path: Path) -> str:
    """Write the line of the manifest for a file."""
    return f"{file_hash(path)}  {path.relative_to(folder).as_posix()}"
