"""Temporary files next to the files that they will replace, and removal of those that killed writers left."""

import contextlib
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leakbound.storage import locks

_IN_USE = ".lock"


@contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yield a path for a new file on the same disk, with the suffix of ``path``.

    The file is removed at the end unless it was moved away. It has a folder to itself, because some libraries
    make temporary files next to what they write. The folder is locked, so that :func:`sweep` knows that it is
    in use.
    """
    folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    lock = locks.opened(folder / _IN_USE)
    with contextlib.suppress(locks.UnlockableError):
        locks.acquire(lock, wait=True)
    try:
        yield folder / f".{path.name}"
    finally:
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)


def sweep(path: Path) -> None:
    """Remove the folders that killed writers of ``path`` left, and keep those of running writers.

    Without locks the two cannot be distinguished, and all folders stay. Other users may have planted links
    and pipes there, which are neither followed nor waited for.
    """
    left = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")
    for folder in [
        hidden for hidden in path.parent.glob(".*") if left.fullmatch(hidden.name) and not hidden.is_symlink()
    ]:
        # Opened for reading and writing, a pipe is not waited for, and no file is made through a link.
        with contextlib.suppress(OSError), (folder / _IN_USE).open("r+") as lock:
            if locks.acquire(lock):
                shutil.rmtree(folder, ignore_errors=True)
