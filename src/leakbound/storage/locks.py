"""Locks that the system releases when their holder ends, however it ends, so that no lock is ever stale.

They work between machines if the file system supports ``flock``, as local ones do, and NFS with its lock
service. Elsewhere nothing can be locked, and :func:`acquire` raises :class:`UnlockableError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


class UnlockableError(OSError):
    """A system or file system without locks."""


def opened(path: Path) -> IO[str]:
    """Open a lock file, and create it and its folder if necessary. Closing it releases the lock.

    Child processes do not inherit it. No other user may open it, because even a reader could hold the lock
    and so keep the owner from working.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    with suppress(OSError):  # created by a colleague who shares it
        path.chmod(0o600)
    return path.open("a+", encoding="utf-8")


def acquire(file: IO[str], *, shared: bool = False, wait: bool = False) -> bool:
    """Take the lock of an open file. Return False if others hold it.

    Args:
        file: File from :func:`opened`.
        shared: Whether others may hold it shared at the same time.
        wait: Whether to wait for the others.

    Raises:
        UnlockableError: If the file system has no locks.
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
    """Hold a lock file, for which others wait.

    Raises:
        UnlockableError: If the file system has no locks.
    """
    with opened(path) as file:
        acquire(file, wait=True)
        yield
