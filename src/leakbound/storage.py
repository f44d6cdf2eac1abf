"""Files: one reader and one writer per kind, atomic, with errors that name the file.

Arrays are safetensors, tables are Parquet, records are JSON. None of them can execute code when read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

_STRINGS = "strings"


class DamagedFileError(ValueError):
    """A file that is missing, truncated or of another kind than its name says."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be read ({reason}). Delete it and make it again.")


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Temporary path beside ``path`` that replaces it when the block ends well and vanishes when it does not.

    Bytes are flushed to disk before the rename, so after a crash the file is either the old one or the whole new one.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        mode = 0o666 & ~_umask()
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _umask() -> int:
    """The process's file creation mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def file_hash(path: Path | str) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    from safetensors.numpy import save_file

    with atomic(path) as temporary:
        save_file(
            {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)},
            temporary,
            {_STRINGS: json.dumps(dict(metadata), sort_keys=True)} if metadata else None,
        )


def read_arrays(path: Path | str) -> dict[str, np.ndarray]:
    """Read the named arrays of a safetensors file.

    Raises:
        DamagedFileError: If the file is missing, truncated or not safetensors.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error


def read_metadata(path: Path | str) -> dict[str, str]:
    """Read the strings stored beside the arrays of a safetensors file.

    Raises:
        DamagedFileError: If the file is missing, truncated or not safetensors.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return json.loads((file.metadata() or {}).get(_STRINGS, "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error


def write_rows(path: Path | str, rows: pd.DataFrame) -> None:
    """Write a table as Parquet; equal tables give equal bytes."""
    with atomic(path) as temporary:
        rows.to_parquet(temporary, index=False, compression="zstd")


def read_rows(path: Path | str) -> pd.DataFrame:
    """Read a Parquet table.

    Raises:
        DamagedFileError: If the file is missing, truncated or not Parquet.
    """
    try:
        return pd.read_parquet(path)
    except (OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error


def write_json(path: Path | str, value: Any) -> None:
    """Write a value as JSON with sorted keys."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path | str) -> Any:
    """Read a JSON file.

    Raises:
        DamagedFileError: If the file is missing or not JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error
