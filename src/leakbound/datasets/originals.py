"""Fingerprints of the original files of a dataset, so that images are prepared again when somebody edits them.

Snakemake compares parameters, so this is one: by content, since the folder may move. It is asked for each time that the
workflow is looked at, so a file that has the size and time of change that were recorded is not read again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakbound.config.data import DatasetConfig
from leakbound.registry import DATASETS
from leakbound.storage import DamagedFileError, file_hash, read_json

Described = dict[str, dict[str, Any]]
"""Name of a file to its ``sha256``, ``size`` in bytes and ``changed`` (nanoseconds since 1970)."""


def describe_originals(name: str, config: DatasetConfig, known: Mapping[str, Any] | None = None) -> Described | None:
    """Original files that a reader takes from a folder, as they are now.

    Args:
        name: Name of the dataset in the configuration.
        config: Its settings.
        known: What was found before; the hash of a file that looks as it did then is taken from there.

    Returns:
        The files; none for a reader that takes none from a folder. None in place of a mapping if they are out of sight:
        missing now, or read from a folder before while no folder is named now.
    """
    reader = DATASETS.get(config.reader or name)
    paths: tuple[Path, ...] = reader.originals(name, config) if hasattr(reader, "originals") else ()
    if not all(path.is_file() for path in paths) or (known and not paths):
        return None
    found: Described = {}
    for path in paths:
        status = path.stat()
        found[path.name] = {"size": status.st_size, "changed": status.st_mtime_ns}
        before = (known or {}).get(path.name, {})
        unchanged = found[path.name].items() <= before.items()
        found[path.name]["sha256"] = before["sha256"] if unchanged else file_hash(path)
    return found


def original_hashes(name: str, config: DatasetConfig, record: Path) -> dict[str, str]:
    """Name of each original file to its SHA-256: what stays the same when the folder is copied elsewhere.

    Files that are out of sight count as they were when they were prepared, so that a shell in which the folder is not
    named does not make everything run again.

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
