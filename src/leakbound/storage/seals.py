"""Seals: files that are whole or not there, and errors that name the file.

Each file has a seal next to it, ``.NAME.sha256``: the SHA-256 of its bytes as ``sha256sum`` prints it, so
that ``sha256sum -c`` reads it. Readers compare before they use anything, and refuse a file without a seal
unless the caller says ``sealed=False``: files that were published, or come from others, have none.
"""

import errno
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from leakbound.storage import limits
from leakbound.storage.errors import DamagedFileError, FullDiskError
from leakbound.storage.scratch import scratch, sweep

T = TypeVar("T")
_SEAL = ".sha256"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LONGEST_SEAL = 1024  # bytes; a name has at most 255
_REPLACING = 0.1  # seconds within which a writer that has replaced a seal has replaced its file too


@contextmanager
def atomic(
    path: Path | str, *, sealed: bool = True, private: bool = False, replace: bool = True
) -> Iterator[Path]:
    """Temporary path that replaces ``path`` when the block ends well and vanishes when it does not.

    Bytes are flushed to disk before the rename, so after a crash the file is either the old one or the whole
    new one. The seal comes first: a crash between the two leaves a file that does not match, never one that
    wrongly does. What an earlier writer of the file left when it was killed vanishes as well.

    Args:
        path: The file to write.
        sealed: Whether it gets a seal. Not for files that people edit, keep in a repository, or that hold
            their own.
        private: Whether nobody but its owner may read it; else the umask says who may.
        replace: Whether a file that is there is replaced, also one that appears meanwhile.

    Raises:
        FileExistsError: If one is there that may not be replaced.
        FullDiskError: If there is no room for the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path)
    try:
        with scratch(path) as temporary:
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            mask = os.umask(0)  # which can only be read by setting it
            os.umask(mask)
            temporary.chmod(0o600 if private else 0o666 & ~mask)
            if sealed:
                with atomic(seal_of(path), sealed=False, replace=replace) as seal:
                    seal.write_text(_seal_text(path, file_hash(temporary)), encoding="utf-8")
            if replace:
                temporary.replace(path)
            else:
                os.link(temporary, path, follow_symlinks=False)  # unlike a rename it fails where something is
    except OSError as error:
        if error.errno in _FULL:
            raise FullDiskError(path, os.strerror(error.errno)) from error
        raise


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    file_size(Path(path))
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_size(path: Path) -> int:
    """Bytes of a regular file, an OSError for a device or a pipe, which may have no end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError("it is no regular file")
    return status.st_size


def seal_of(path: Path | str) -> Path:
    """Path of a file's seal, present or not."""
    path = Path(path)
    return path.parent / f".{path.name}{_SEAL}"  # a path without a name is that of a folder


def sealed_by(seal: Path) -> Path | None:
    """Path of the file that a seal belongs to, by the seal's name. None if the name is not that of a seal."""
    name = seal.name
    return seal.with_name(name[1 : -len(_SEAL)]) if name.startswith(".") and name.endswith(_SEAL) else None


def _seal_text(path: Path, digest: str) -> str:
    """Content of the seal of a file with this SHA-256."""
    return f"{digest}  {path.name}\n"


def check(path: Path | str) -> str:
    """SHA-256 of a file that is as it was written, in hexadecimal; for files that are passed on without being parsed.

    Raises:
        DamagedFileError: If the file or its seal is missing, or they do not match.
    """
    return _matching(Path(path), file_hash, lambda digest: digest)


def _matching(path: Path, read: Callable[[Path], T], digest: Callable[[T], str]) -> T:
    """Content of a file as ``read`` gives it, once its SHA-256 is the one in the seal.

    Looks twice: whoever reads while a record is replaced may meet the new seal next to the old file.
    """
    for wait in (_REPLACING, 0.0):
        try:
            sealed = read(path)
        except (
            OSError
        ) as error:  # also for a folder, whose path may have no name that a seal could be called by
            raise DamagedFileError(path, error) from error
        seal = seal_of(path)
        try:
            with seal.open("rb") as file:
                expected = file.read(_LONGEST_SEAL)
        except FileNotFoundError:
            raise DamagedFileError(
                path, f"no checksum file {seal.name}, so its integrity cannot be verified"
            ) from None
        except OSError as error:
            raise DamagedFileError(path, f"its seal: {error}") from error
        if expected == _seal_text(path, digest(sealed)).encode():
            return sealed
        time.sleep(wait)
    raise DamagedFileError(
        path,
        f"its SHA-256 is {digest(sealed)[:16]}…, its seal says {expected[:16].decode(errors='replace')}…",
    )


def read_bytes(path: Path | str, *, sealed: bool = True, most: int = limits.WHOLE) -> bytes:
    """Content of a file of any kind.

    Args:
        path: The file.
        sealed: Whether it must match its seal.
        most: Bytes that are allowed, before the user's factor.

    Raises:
        DamagedFileError: If the file is missing, or sealed and damaged.
        TooLargeError: If it has more bytes.
    """
    path = Path(path)

    def content(path: Path) -> bytes:
        limits.check_limit(path, "bytes", size := file_size(path), most)
        with path.open("rb") as file:
            return file.read(size)  # no more, if it grows meanwhile

    if sealed:
        return _matching(path, content, lambda content: hashlib.sha256(content).hexdigest())
    try:
        return content(path)
    except OSError as error:
        raise DamagedFileError(path, error) from error
