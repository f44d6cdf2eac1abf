"""Fingerprints of the original files of a dataset, so that images are prepared again after an edit.

Snakemake compares parameters, and this fingerprint is one of them. It depends on the content, because the
folder may be moved. It is computed each time that Snakemake reads the workflow, so a file whose size and time
of change are as recorded is not read again.
"""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from leakbound.storage import DamagedFileError, file_hash, read_json
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.registries import DATASETS

PART = b"leakbound.part"
"""Key of a Parquet file's metadata that states which records of another file it holds."""
_LONGEST = 200  # characters of that statement
Described = dict[str, dict[str, Any]]
"""Name of a file to its ``sha256``, ``size`` in bytes and time ``changed`` (nanoseconds since 1970), and
``part`` if it states which records of another file it holds.

For a folder these are a hash over names and hashes of its files, their total size, and a hash over names,
sizes and times.
"""


def describe_originals(
    name: str, config: DatasetConfig, recorded: Mapping[str, Any] | None = None
) -> Described | None:
    """Describe the original files that a reader takes from a folder.

    Args:
        name: Name of the dataset in the configuration.
        config: Its settings.
        recorded: Earlier description. The hash of a file with unchanged size and time is taken from it.

    Returns:
        Description of the files, empty for a reader without a folder. None if the files are out of reach: if
        they are missing, or if they were recorded and no folder is set now.
    """
    reader = DATASETS.get(config.reader or name)
    paths: tuple[Path, ...] = reader.originals(name, config) if hasattr(reader, "originals") else ()
    if not all(path.exists() for path in paths) or (recorded and not paths):
        return None
    described: Described = {}
    for path in paths:
        described[path.name] = _size_and_time(path)
        before = (recorded or {}).get(path.name, {})
        unchanged = described[path.name].items() <= before.items()
        described[path.name] = before if unchanged else described[path.name] | _content(path)
    return described


def _content(path: Path) -> dict[str, str]:
    """Return the hash of a file, or of a folder's names and hashes, and what a file is a part of."""
    from pyarrow import parquet

    if path.is_dir():
        return {"sha256": _hash_of([f"{file_hash(file)}\0{name}" for name, file in _files(path).items()])}
    facts = {"sha256": file_hash(path)}
    if path.suffix == ".parquet":
        with suppress(OSError, ValueError):  # its reader refuses it later, in a sentence
            stated = (parquet.read_schema(path).metadata or {}).get(PART, b"")
            facts |= {"part": stated.decode()[:_LONGEST]} if stated else {}
    return facts


def _files(folder: Path) -> dict[str, Path]:
    """Map names to the files of a folder of class folders, without hidden ones."""
    paths = {
        path.relative_to(folder).as_posix(): path for depth in ("*", "*/*") for path in folder.glob(depth)
    }
    return {name: paths[name] for name in sorted(paths) if paths[name].is_file() and "/." not in f"/{name}"}


def _size_and_time(path: Path) -> dict[str, Any]:
    """Return size and time of change of a file, or of a folder's files."""
    if not path.is_dir():
        status = path.stat()
        return {"size": status.st_size, "changed": status.st_mtime_ns}
    statuses = {name: file.stat() for name, file in _files(path).items()}
    times = [f"{name}\0{status.st_size}\0{status.st_mtime_ns}" for name, status in statuses.items()]
    return {"size": sum(status.st_size for status in statuses.values()), "changed": _hash_of(times)}


def _hash_of(lines: list[str]) -> str:
    """Compute SHA-256 of texts in order, with a separator that no name of a file contains."""
    return hashlib.sha256("\0\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def original_hashes(name: str, config: DatasetConfig, record: Path) -> dict[str, str]:
    """Map each original file to its SHA-256, which stays the same when the folder is copied elsewhere.

    Files that are out of reach count as recorded when they were prepared. Otherwise a shell without the
    environment variable of the folder would make everything run again.

    Args:
        name: Name of the dataset in the configuration.
        config: Its settings.
        record: Provenance that ``prepare`` has written, or will write.
    """
    try:
        recorded = read_json(record)["originals"]
    except (DamagedFileError, KeyError):
        recorded = {}
    described = describe_originals(name, config, recorded)
    return {
        file: facts["sha256"]
        for file, facts in sorted((recorded if described is None else described).items())
    }
