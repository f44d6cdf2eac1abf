"""Seals: files and folders that are either complete or absent, and errors that name the file.

Each file has a seal next to it, ``.NAME.sha256``, with the SHA-256 of its bytes in the format of
``sha256sum``. Readers compare the two first. They refuse a file without a seal unless the caller passes
``sealed=False``, for files that were published or come from others.

A file is written next to the one that it will replace, and what killed writers left there is removed.
"""

import contextlib
import errno
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

from leakbound.storage import limits, locks
from leakbound.storage.limits import DamagedFileError, FullDiskError

_IN_USE = ".lock"
T = TypeVar("T")
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LONGEST_SEAL = 1024  # bytes; a name has at most 255
_REPLACING = 0.1  # seconds within which a writer that has replaced a seal has replaced its file too


@contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """Yield a path for a new file on the same disk, with the suffix of ``path``.

    The file is removed at the end unless it was moved away. It has a folder to itself, because some libraries
    make temporary files next to what they write. The folder is locked, so that :func:`sweep` knows that it is
    in use.
    """
    folder, lock = _locked_folder(path)
    try:
        yield folder / f".{path.name}"
    finally:
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)


def _locked_folder(path: Path) -> tuple[Path, IO[str]]:
    """Make a folder next to a file, and lock it. Between the two another writer may have swept it: then once more."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        with contextlib.suppress(FileNotFoundError):
            lock = locks.opened(folder / _IN_USE)
            with contextlib.suppress(locks.UnlockableError):
                locks.acquire(lock, wait=True)
            if (folder / _IN_USE).exists():
                return folder, lock
            lock.close()


def sweep(path: Path) -> None:
    """Remove the folders that killed writers of ``path`` left, and keep those of running writers.

    Without locks the two cannot be distinguished, and all folders stay. Other users may have planted links
    and pipes there, which are neither followed nor waited for.
    """
    left = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")
    for folder in [*path.parent.glob(".*")]:
        if folder.is_symlink() or not left.fullmatch(folder.name):
            continue
        # Opened for reading and writing, a pipe is not waited for, and no file is made through a link.
        with contextlib.suppress(OSError), (folder / _IN_USE).open("r+") as lock:
            if locks.acquire(lock):
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def atomic(
    path: Path | str, *, sealed: bool = True, private: bool = False, replace: bool = True
) -> Iterator[Path]:
    """Yield a temporary path that replaces ``path`` if the block succeeds, and is removed if it fails.

    Bytes are flushed to disk before the rename, so after a crash the file is either the old one or the
    complete new one. The seal is written first. A crash between the two leaves a file that does not match its
    seal, never one that matches wrongly. Temporary files of earlier writers that were killed are removed too.

    Args:
        path: File to write.
        sealed: Whether it gets a seal. False for files that people edit, that are kept in a repository, or
            that contain their own hash.
        private: Whether only the owner may read it. If not, the umask decides.
        replace: Whether an existing file is replaced, also one that appears meanwhile.

    Raises:
        FileExistsError: If the file exists and may not be replaced.
        FullDiskError: If the disk is full.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    try:
        with scratch(path) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            mask = os.umask(0)  # the umask can only be read by setting it
            os.umask(mask)
            temporary.chmod(0o600 if private else 0o666 & ~mask)
            if sealed:
                with atomic(seal_of(path), sealed=False, replace=replace) as seal:
                    seal.write_text(_seal_text(path, file_hash(temporary)), encoding="utf-8")
            if replace:
                temporary.replace(path)
            else:
                # Unlike a rename, it fails if the path exists.
                os.link(temporary, path, follow_symlinks=False)
    except OSError as error:
        if error.errno in _FULL:
            raise FullDiskError(path, os.strerror(error.errno)) from error
        raise


def file_hash(path: Path | str) -> str:
    """Compute SHA-256 of a file's bytes, in hexadecimal."""
    file_size(Path(path))
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_size(path: Path) -> int:
    """Return the size of a regular file in bytes.

    Raises:
        OSError: For a device or a pipe, which may have no end.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is no regular file")
    return status.st_size


def seal_of(path: Path | str) -> Path:
    """Return the path of a file's seal, whether or not it exists."""
    path = Path(path)
    return path.parent / f".{path.name}.sha256"  # a folder's path may have no name, which with_name refuses


def _seal_text(path: Path, digest: str) -> str:
    """Write the content of the seal of a file with this SHA-256."""
    return f"{digest}  {path.name}\n"


def check(path: Path | str) -> str:
    """Check a file against its seal, and return its SHA-256 in hexadecimal.

    Raises:
        DamagedFileError: If the file or its seal is missing, or they do not match.
    """
    return _matching(Path(path), file_hash, str)


def _matching(path: Path, read: Callable[[Path], T], digest: Callable[[T], str]) -> T:
    """Return the content of a file as ``read`` gives it, if its SHA-256 is the one in the seal.

    A mismatch is checked a second time. While a file is being replaced, the new seal may lie next to the old
    file.

    Args:
        path: The file.
        read: Reads the file.
        digest: Computes the SHA-256 of the content.
    """
    for wait in (_REPLACING, 0.0):
        try:
            sealed = read(path)
        except OSError as error:  # before the seal, because a folder's path may have no name
            raise DamagedFileError(path, error) from error
        seal = seal_of(path)
        try:
            with seal.open("rb") as file:
                expected = file.read(_LONGEST_SEAL)
        except OSError as error:
            reason = f"no checksum file {seal.name}, so its integrity cannot be verified"
            gone = isinstance(error, FileNotFoundError)
            raise DamagedFileError(path, reason if gone else f"its seal: {error}") from error
        if expected == _seal_text(path, digest(sealed)).encode():
            return sealed
        time.sleep(wait)
    stated = expected[:16].decode(errors="replace")
    raise DamagedFileError(path, f"its SHA-256 is {digest(sealed)[:16]}…, its seal says {stated}…")


def read_bytes(path: Path | str, *, sealed: bool = True, most: int = limits.WHOLE) -> bytes:
    """Read a file of any kind.

    Args:
        path: The file.
        sealed: Whether it must match its seal.
        most: Bytes that are allowed, before the user's factor.

    Raises:
        DamagedFileError: If the file is missing, or does not match its seal.
        TooLargeError: If it has more bytes.
    """
    path = Path(path)

    def content(path: Path) -> bytes:
        limits.check_limit(path, "bytes", size := file_size(path), most)
        with path.open("rb") as file:
            return file.read(size)  # no more if the file grows meanwhile

    if sealed:
        return _matching(path, content, lambda content: hashlib.sha256(content).hexdigest())
    try:
        return content(path)
    except OSError as error:
        raise DamagedFileError(path, error) from error


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
