"""Fingerprints of the original files of a dataset, so that images are prepared again when somebody edits them.

Snakemake compares parameters, so this is one: by content, since the folder may move. It is asked for each
time that the workflow is looked at, so a file that has the size and time of change that were recorded is not
read again.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakbound.config.data import DatasetConfig
from leakbound.registry import DATASETS
from leakbound.storage import DamagedFileError, file_hash, read_json

Described = dict[str, dict[str, Any]]
"""Name of a file to its ``sha256``, ``size`` in bytes and ``changed`` (nanoseconds since 1970).

Of a folder these are a hash over names and hashes of all its files, their size, and a hash over names, sizes
and times.
"""


def describe_originals(
    name: str, config: DatasetConfig, known: Mapping[str, Any] | None = None
) -> Described | None:
    """Original files that a reader takes from a folder, as they are now.

    Args:
        name: Name of the dataset in the configuration.
        config: Its settings.
        known: What was found before; the hash of a file that looks as it did then is taken from there.

    Returns:
        The files; none for a reader that takes none from a folder. None in place of a mapping if they are out
        of sight: missing now, or read from a folder before while no folder is named now.
    """
    reader = DATASETS.get(config.reader or name)
    paths: tuple[Path, ...] = reader.originals(name, config) if hasattr(reader, "originals") else ()
    if not all(path.exists() for path in paths) or (known and not paths):
        return None
    found: Described = {}
    for path in paths:
        found[path.name] = _look(path)
        before = (known or {}).get(path.name, {})
        unchanged = found[path.name].items() <= before.items()
        found[path.name]["sha256"] = before["sha256"] if unchanged else _content_hash(path)
    return found


def _files(folder: Path) -> dict[str, Path]:
    """Files of a folder of class folders by name, but for hidden ones."""
    found = {
        path.relative_to(folder).as_posix(): path for depth in ("*", "*/*") for path in folder.glob(depth)
    }
    return {name: found[name] for name in sorted(found) if found[name].is_file() and "/." not in f"/{name}"}


def _look(path: Path) -> dict[str, Any]:
    """Size and times of a file or of a folder's files."""
    if not path.is_dir():
        status = path.stat()
        return {"size": status.st_size, "changed": status.st_mtime_ns}
    seen = {name: one.stat() for name, one in _files(path).items()}
    times = [f"{name}\0{one.st_size}\0{one.st_mtime_ns}" for name, one in seen.items()]
    return {"size": sum(one.st_size for one in seen.values()), "changed": _hash_of(times)}


def _content_hash(path: Path) -> str:
    """SHA-256 of a file, or of the names and hashes of a folder's files."""
    if not path.is_dir():
        return file_hash(path)
    return _hash_of([f"{file_hash(one)}\0{name}" for name, one in _files(path).items()])


def _hash_of(lines: list[str]) -> str:
    """SHA-256 of some texts, in order; no name of a file holds what is between them."""
    return hashlib.sha256("\0\0".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def original_hashes(name: str, config: DatasetConfig, record: Path) -> dict[str, str]:
    """Name of each original file to its SHA-256: what stays the same when the folder is copied elsewhere.

    Files that are out of sight count as they were when they were prepared, so that a shell in which the
    folder is not named does not make everything run again.

    Args:
        name: Name of the dataset in the configuration.
        config: Its settings.
        record: Provenance that ``prepare`` has written, or will write.
    """
    try:
        known = read_json(record)["originals"]
    except (DamagedFileError, KeyError):
        known = {}
    found = describe_originals(name, config, known)
    return {file: facts["sha256"] for file, facts in sorted((known if found is None else found).items())}
