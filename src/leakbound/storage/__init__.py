"""Files that are either complete or absent, with seals and provenance."""

from leakbound.storage.files import (
    arrays_hash,
    read_arrays,
    read_arrays_and_metadata,
    read_json,
    read_metadata,
    read_rows,
    write_arrays,
    write_json,
    write_rows,
    write_text,
)
from leakbound.storage.limits import DamagedFileError, FullDiskError, TooLargeError
from leakbound.storage.seals import atomic, check, file_hash, read_bytes, seal_of

__all__ = [
    "DamagedFileError",
    "FullDiskError",
    "TooLargeError",
    "arrays_hash",
    "atomic",
    "check",
    "file_hash",
    "read_arrays",
    "read_arrays_and_metadata",
    "read_bytes",
    "read_json",
    "read_metadata",
    "read_rows",
    "seal_of",
    "write_arrays",
    "write_json",
    "write_rows",
    "write_text",
]
