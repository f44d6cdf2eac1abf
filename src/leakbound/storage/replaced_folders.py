"""Folders that are replaced as a whole, and never if they hold anything that was not written by the same means."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakbound.storage.scratch import scratch, sweep
from leakbound.storage.seals import file_hash

MANIFEST = "MANIFEST.sha256"
"""File of such a folder that lists all others, as ``sha256sum`` prints them and ``sha256sum -c`` reads them."""


class ForeignFolderError(ValueError):
    """A folder that may not be replaced, because something in it would be lost."""

    def __init__(self, folder: Path, reason: str) -> None:
        super().__init__(
            f"{folder}: {reason}, and it would be replaced. Name a folder that is missing, empty, or exactly as "
            f"leakbound left it (its {MANIFEST} says how); move whatever else it holds."
        )


def check_replaceable(folder: Path) -> None:
    """Refuse a folder unless it is missing, empty, or ours and unchanged. Nothing is written.

    Raises:
        ForeignFolderError: If it is a link or a file, or holds a file that its manifest does not list as it
            is.
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
    """List all files of a folder in its manifest."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path != folder / MANIFEST]
    (folder / MANIFEST).write_text("".join(f"{_line(folder, path)}\n" for path in files), encoding="utf-8")


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """An empty folder next to the one that it is to become, which vanishes where it is not moved."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with scratch(folder) as new:
        new.mkdir()
        yield new


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """An empty folder that takes the place of ``folder`` when the block ends well, and vanishes when it does not.

    The old one is moved aside first, to ``.NAME.before``. Whoever is killed then finds it there, and the next
    call puts it back.

    Raises:
        ForeignFolderError: As :func:`check_replaceable`.
    """
    folder = Path(os.path.abspath(folder))
    before = folder.with_name(f".{folder.name}.before")
    if before.is_dir() and not folder.exists():
        before.rename(folder)
    check_replaceable(folder)
    check_replaceable(before)
    with _beside(folder) as new:
        yield new
        write_manifest(new)
        check_replaceable(folder)  # what came meanwhile
        if (
            before.exists()
        ):  # whoever left it was killed before it was gone; what is half deleted would be foreign
            before.rename(new.with_name("left"))
        if folder.exists():
            folder.rename(before)
        new.rename(folder)
        if before.exists():
            before.rename(new.with_name("replaced"))


def check_new(folder: Path) -> None:
    """Refuse a folder that is there already, unless it is empty. Nothing is written.

    Raises:
        ValueError: If it is a link or a file, or holds anything.
    """
    if folder.is_symlink() or (folder.exists() and not (folder.is_dir() and not any(folder.iterdir()))):
        raise ValueError(
            f"{folder}: is there already. Name a folder that is missing or empty; nothing is overwritten."
        )


@contextmanager
def created(folder: Path) -> Iterator[Path]:
    """An empty folder that becomes ``folder`` when the block ends well, and vanishes when it does not.

    Everybody may read what is in it, and all of it is on the disk before it gets its name.

    Raises:
        ValueError: As :func:`check_new`.
    """
    folder = Path(os.path.abspath(folder))
    check_new(folder)
    with _beside(folder) as new:
        yield new
        for path in (one for one in new.rglob("*") if one.is_file()):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        new.chmod(0o755)
        check_new(folder)  # what came meanwhile
        new.replace(folder)


def _line(folder: Path, path: Path) -> str:
    """Line of the manifest for a file as it is."""
    return f"{file_hash(path)}  {path.relative_to(folder).as_posix()}"
