"""Locks that the system releases when their holder ends, however it ends: none is ever stale.

They hold between machines as far as the file system carries ``flock``: local ones do, and NFS with its lock
service. Elsewhere nothing is locked, and :func:`taken` says so.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class UnlockableError(OSError):
    """A system, or a file system, that has no locks."""


def opened(path: Path) -> IO[str]:
    """Lock file, open, made with its folder if need be; closing it releases the lock. Children do not inherit it.

    Nobody else may open it: who only reads a file can hold its lock too, and so keep its owner from working.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    with suppress(OSError):  # made by a colleague who shares it
        path.chmod(0o600)
    return path.open("a+", encoding="utf-8")


def acquire(file: IO[str], *, shared: bool = False, wait: bool = False) -> bool:
    """Take the lock of an open file, or False if others hold it.

    Args:
        file: From :func:`opened`.
        shared: Whether others may hold it shared at the same time.
        wait: Whether to wait for the others.

    Raises:
        UnlockableError: If there are no locks here.
    """
    try:
        import fcntl

        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError) as error:
        raise UnlockableError(f"{file.name}: cannot be locked here ({error})") from error
    return True


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path``; others wait. Raises :class:`UnlockableError` if there are no locks here."""
    with opened(path) as file:
        acquire(file, wait=True)
        yield
