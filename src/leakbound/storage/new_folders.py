"""Folders that appear complete or not at all, and only where there is none."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakbound.storage.seals import scratch, sweep


@contextmanager
def neighbor(folder: Path) -> Iterator[Path]:
    """Make an empty folder next to ``folder``, and remove it at the end unless it was moved away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    with scratch(folder) as new:
        new.mkdir()
        yield new


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
    with neighbor(folder) as new:
        yield new
        for path in filter(Path.is_file, new.rglob("*")):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        new.chmod(0o755)
        check_new(folder)  # it may have appeared meanwhile
        new.replace(folder)
