"""One reader and one writer for each kind of file.

Arrays are safetensors, tables are Parquet, records are JSON. None of them can execute code when read.

Each reader refuses a file that does not match its seal, unless ``sealed=False`` says that it has none, and
raises :class:`DamagedFileError` if a file is missing, damaged, or of another kind than its name says.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leakbound.storage import limits
from leakbound.storage.limits import DamagedFileError, TooLargeError
from leakbound.storage.parquet import ParquetSource
from leakbound.storage.seals import atomic, check, file_size, read_bytes

if TYPE_CHECKING:  # imported on use, because every job of a cluster parses the workflow, which needs neither
    import numpy as np
    import pandas as pd

_STRINGS = "strings"


def arrays_hash(arrays: Mapping[str, np.ndarray], secret: str = "") -> str:
    """Compute SHA-256 over names, shapes, types and bytes of arrays, independent of how they are stored.

    Args:
        arrays: Arrays by name.
        secret: Text that is hashed before the arrays. Whoever does not know it cannot test guesses of private
            arrays against the hash.
    """
    import numpy as np

    digest = hashlib.sha256(secret.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def write_arrays(
    path: Path | str,
    arrays: Mapping[str, np.ndarray],
    metadata: Mapping[str, str] | None = None,
    *,
    private: bool = False,
    replace: bool = True,
    sealed: bool = True,
) -> None:
    """Write named arrays, and strings about them, as one safetensors file. Equal contents give equal bytes.

    The strings are written as one entry, because safetensors writes several entries in random order.

    Args:
        path: File to write.
        arrays: Arrays by name.
        metadata: Strings by name.
        private: Whether only the owner may read the file.
        replace: Whether an existing file is replaced.
        sealed: Whether the file gets a seal.
    """
    import numpy as np
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with atomic(path, private=private, replace=replace, sealed=sealed) as temporary:
        contiguous = {name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)}
        strings = {_STRINGS: json.dumps(dict(metadata), sort_keys=True)} if metadata else None
        try:
            save_file(contiguous, temporary, strings)
        except SafetensorError as error:
            code = re.search(r"\(os error (\d+)\)", str(error))
            if code is None:
                raise
            raise OSError(int(code[1]), os.strerror(int(code[1]))) from error


def read_arrays(path: Path | str, *, sealed: bool = True) -> dict[str, np.ndarray]:
    """Read the named arrays of a safetensors file."""
    return read_arrays_and_metadata(path, sealed=sealed)[0]


def read_metadata(path: Path | str, *, sealed: bool = True) -> dict[str, str]:
    """Read the strings stored with the arrays of a safetensors file."""
    with _archive(Path(path), sealed) as archive:
        return _strings(archive)


def read_arrays_and_metadata(
    path: Path | str, *, sealed: bool = True
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the named arrays of a safetensors file and the strings stored with them, hashing the file once."""
    with _archive(Path(path), sealed) as archive:
        arrays = {name: archive.get_tensor(name) for name in archive.keys()}  # noqa: SIM118
        return arrays, _strings(archive)


@contextmanager
def _archive(path: Path, sealed: bool) -> Iterator[Any]:
    """Open a safetensors file that matches its seal.

    The file is hashed piece by piece and then mapped. Reading all bytes would take twice the memory, and
    weights and images have gigabytes.
    """
    from safetensors import SafetensorError, safe_open

    try:
        before = path.stat()
        limits.check_limit(path, "bytes", file_size(path), limits.ARRAYS)
        if sealed:
            check(path)
        with path.open("rb") as file:
            described = int.from_bytes(file.read(8), "little")
        limits.check_limit(path, "bytes of description", described, limits.HEAD)
        with safe_open(path, framework="numpy") as archive:
            yield archive
        if not os.path.samestat(before, path.stat()):
            raise DamagedFileError(path, "it was replaced while it was read")
    except DamagedFileError:
        raise
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        raise DamagedFileError(path, error) from error  # the last two are of unknown types


def _strings(archive: Any) -> dict[str, str]:
    """Return the strings stored with the arrays of an open safetensors file.

    Raises:
        ValueError: If the file holds something else in their place.
    """
    texts = _parsed((archive.metadata() or {}).get(_STRINGS, "{}"))
    if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it holds something else than named strings next to its arrays")
    return texts


def _parsed(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: If the text is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("its values are nested too deeply") from error


def write_rows(path: Path | str, rows: pd.DataFrame, *, sealed: bool = True) -> None:
    """Write a table as Parquet. Equal tables give equal bytes."""
    with atomic(path, sealed=sealed) as temporary:
        rows.to_parquet(temporary, index=False, compression="zstd")


def read_rows(path: Path | str, *, sealed: bool = True) -> pd.DataFrame:
    """Read a Parquet table."""
    import pyarrow as pa

    content = read_bytes(path, sealed=sealed)
    try:
        source = ParquetSource(pa.BufferReader(content), path)
        return pa.Table.from_batches(source.batches(), source.schema).combine_chunks().to_pandas()
    except TooLargeError:
        raise
    except (OSError, ValueError) as error:
        raise DamagedFileError(Path(path), error) from error


def write_text(
    path: Path | str, text: str, *, sealed: bool = True, private: bool = False, replace: bool = True
) -> None:
    """Write a text in UTF-8. The arguments are those of :func:`leakbound.storage.atomic`."""
    with atomic(path, sealed=sealed, private=private, replace=replace) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path | str, value: Any, *, sealed: bool = True, private: bool = False) -> None:
    """Write plain values as JSON with sorted keys. All numbers must be finite."""
    text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
    write_text(path, text, sealed=sealed, private=private)


def read_json(path: Path | str, *, sealed: bool = True) -> Any:
    """Read a JSON file."""
    content = read_bytes(path, sealed=sealed, most=limits.TEXT)
    try:
        return _parsed(content)
    except ValueError as error:
        raise DamagedFileError(Path(path), error) from error
