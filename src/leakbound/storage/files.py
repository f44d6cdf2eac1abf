"""Files: one reader and one writer per kind, atomic, with errors that name the file.

Arrays are safetensors, tables are Parquet, records are JSON. None of them can execute code when read.

Each file has a seal beside it, ``.NAME.sha256``: the SHA-256 of its bytes as ``sha256sum`` prints it, so that
``sha256sum -c`` reads it. Readers compare before they use anything, and refuse a file without a seal unless the caller
says ``sealed=False``: what was published, or comes from others, has none.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from leakbound.storage.scratch import scratch, sweep

T = TypeVar("T")
_STRINGS = "strings"
_SEAL = ".sha256"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_REPLACING = 0.1  # seconds within which a writer that has replaced a seal has replaced its file too


class DamagedFileError(ValueError):
    """A file that is missing, truncated, altered, exchanged for another, or of another kind than its name says.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{path}: cannot be read ({reason}). Delete it and make it again; `leakbound verify` finds all such files."
        )
        self.reason = str(reason)


class FullDiskError(OSError):
    """A file that could not be written for lack of space."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be written ({reason}). Make room and run the same command again.")


@contextmanager
def atomic(path: Path | str, *, sealed: bool = True) -> Iterator[Path]:
    """Temporary path that replaces ``path`` when the block ends well and vanishes when it does not.

    Bytes are flushed to disk before the rename, so after a crash the file is either the old one or the whole new one.
    The seal comes first: a crash between the two leaves a file that does not match, never one that wrongly does. What
    an earlier writer of the file left when it was killed vanishes as well.

    Args:
        path: The file to write.
        sealed: Whether it gets a seal. Not for files that people edit, keep in a repository, or that hold their own.

    Raises:
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
            mode = 0o666 & ~_umask()
            temporary.chmod(mode)
            if sealed:
                text = _seal_text(path, file_hash(temporary))
                with atomic(seal_of(path), sealed=False) as seal:
                    seal.write_text(text, encoding="utf-8")
            temporary.replace(path)
    except OSError as error:
        if error.errno in _FULL:
            raise FullDiskError(path, os.strerror(error.errno)) from error
        raise


def _umask() -> int:
    """The process's file creation mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal_of(path: Path | str) -> Path:
    """The seal of a file, whether or not there is one."""
    path = Path(path)
    return path.with_name(f".{path.name}{_SEAL}")


def sealed_by(seal: Path) -> Path | None:
    """The file that a seal is of, by its name; none if the name is not that of a seal."""
    name = seal.name
    return seal.with_name(name[1 : -len(_SEAL)]) if name.startswith(".") and name.endswith(_SEAL) else None


def _seal_text(path: Path, digest: str) -> str:
    """What the seal of a file with this SHA-256 holds."""
    return f"{digest}  {path.name}\n"


def check(path: Path | str) -> str:
    """SHA-256 of a file that is as it was written, in hexadecimal; for files that are passed on without being parsed.

    Raises:
        DamagedFileError: If the file or its seal is missing, or they do not match.
    """
    return _matching(Path(path), file_hash, lambda digest: digest)


def _matching(path: Path, read: Callable[[Path], T], digest: Callable[[T], str]) -> T:
    """What ``read`` finds in a file, once its SHA-256 is the one in the seal.

    Looks twice: whoever reads while a record is replaced, as ``sync`` does, may meet the new seal beside the old file.

    Raises:
        DamagedFileError: If the file or its seal is missing, or they do not match.
    """
    seal = seal_of(path)
    for wait in (_REPLACING, 0.0):
        try:
            found = read(path)
        except OSError as error:
            raise DamagedFileError(path, error) from error
        try:
            expected = seal.read_bytes()
        except FileNotFoundError:
            raise DamagedFileError(path, f"it has no seal {seal.name}: nobody knows whether it is whole") from None
        except OSError as error:
            raise DamagedFileError(path, f"its seal: {error}") from error
        if expected == _seal_text(path, digest(found)).encode():
            return found
        time.sleep(wait)
    raise DamagedFileError(
        path, f"its SHA-256 is {digest(found)[:16]}…, its seal says {expected[:16].decode(errors='replace')}…"
    )


def arrays_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 over names, shapes, types and bytes of ``arrays``, independent of how they are stored."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_arrays(path: Path | str, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write named arrays, and strings about them, as one safetensors file; equal contents give equal bytes.

    The strings go into one entry, because safetensors writes several in random order.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic(path) as temporary:
        try:
            save_file(
                {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)},
                temporary,
                {_STRINGS: json.dumps(dict(metadata), sort_keys=True)} if metadata else None,
            )
        except SafetensorError as error:
            found = re.search(r"\(os error (\d+)\)", str(error))
            if found is None:
                raise
            raise OSError(int(found[1]), os.strerror(int(found[1]))) from error


def read_arrays(path: Path | str, *, sealed: bool = True) -> dict[str, np.ndarray]:
    """Read the named arrays of a safetensors file.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing, damaged or not safetensors.
    """
    return read_arrays_and_metadata(path, sealed=sealed)[0]


def read_metadata(path: Path | str, *, sealed: bool = True) -> dict[str, str]:
    """Read the strings stored beside the arrays of a safetensors file.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing, damaged or not safetensors.
    """
    with _archive(Path(path), sealed) as archive:
        return _strings(archive)


def read_arrays_and_metadata(path: Path | str, *, sealed: bool = True) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the named arrays of a safetensors file and the strings stored beside them, with one look at its bytes.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing, damaged or not safetensors.
    """
    with _archive(Path(path), sealed) as archive:
        return archive.get_tensors(), _strings(archive)


@contextmanager
def _archive(path: Path, sealed: bool) -> Iterator[Any]:
    """A safetensors file that matches its seal.

    It is hashed piece by piece and then mapped, not read into memory as bytes, which would need twice the memory:
    weights and images have gigabytes.
    """
    from safetensors import SafetensorError, safe_open

    try:
        before = path.stat()
        if sealed:
            check(path)
        with safe_open(path, framework="numpy") as archive:
            yield archive
        if not os.path.samestat(before, path.stat()):
            raise DamagedFileError(path, "it was replaced while it was read")
    except DamagedFileError:
        raise
    except (
        SafetensorError,
        OSError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:  # the last two: types unknown here
        raise DamagedFileError(path, error) from error


def _strings(archive: Any) -> dict[str, str]:
    """The strings stored beside the arrays of an open safetensors file.

    Raises:
        ValueError: If there is something else.
    """
    found = _parsed((archive.metadata() or {}).get(_STRINGS, "{}"))
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise ValueError("what lies beside its arrays are no named strings")
    return found


def _parsed(text: str | bytes) -> Any:
    """A value from JSON.

    Raises:
        ValueError: If it is no JSON, or nested more deeply than can be read.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def write_rows(path: Path | str, rows: pd.DataFrame) -> None:
    """Write a table as Parquet; equal tables give equal bytes."""
    with atomic(path) as temporary:
        rows.to_parquet(temporary, index=False, compression="zstd")


def read_rows(path: Path | str, *, sealed: bool = True) -> pd.DataFrame:
    """Read a Parquet table.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing, damaged or not Parquet.
    """
    content = read_bytes(path, sealed=sealed)
    try:
        return pd.read_parquet(io.BytesIO(content))
    except (OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error


def write_json(path: Path | str, value: Any, *, sealed: bool = True) -> None:
    """Write a value as JSON with sorted keys.

    Args:
        path: The file.
        value: Plain values, all numbers finite.
        sealed: Whether it gets a seal.
    """
    with atomic(path, sealed=sealed) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path | str, *, sealed: bool = True) -> Any:
    """Read a JSON file.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing, damaged or not JSON.
    """
    content = read_bytes(path, sealed=sealed)
    try:
        return _parsed(content)
    except ValueError as error:
        raise DamagedFileError(Path(path), error) from error


def read_bytes(path: Path | str, *, sealed: bool = True) -> bytes:
    """Read a file of any kind.

    Args:
        path: The file.
        sealed: Whether it must match its seal.

    Raises:
        DamagedFileError: If the file is missing or damaged.
    """
    path = Path(path)
    if sealed:
        return _matching(path, Path.read_bytes, lambda content: hashlib.sha256(content).hexdigest())
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedFileError(path, error) from error
