"""Statements on paper as files: an HTML page of A4 and the same as JSON, and the digest of the data that they name."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.accounting.sheet import sheet_page
from leakbound.engine.refusals import GuaranteeError

SEES = (
    (
        "Whoever receives the release",
        "what was computed from the noisy records, e.g. uploads or weights; no clean record",
    ),
    ("You alone", "the records, ledgers, saved states and this page"),
)
"""Who sees what of a training loop of one's own, if nothing else is said."""


def check_sheet(path: Path) -> None:
    """Refuse a file for a page that is there already, or has another name than ``.html``.

    Raises:
        GuaranteeError: If the page or the JSON next to it cannot be written as new files.
    """
    if path.suffix.lower() != ".html":
        raise GuaranteeError(
            f"{path}: a statement is a page; name it .html, and the .json is written next to it"
        )
    for file in (path, path.with_suffix(".json")):
        if file.exists():
            raise GuaranteeError(f"{file}: is there already; name another file, nothing is overwritten")
    if not path.absolute().parent.is_dir():
        raise GuaranteeError(f"{path}: {path.absolute().parent} is no folder; make it first")


def write_sheet(path: Path, facts: Mapping[str, Any], *, replace: bool = False) -> None:
    """Write the values of :func:`leakbound.accounting.sheet.sheet` as a page, and as JSON next to it.

    Only the owner of the files can read them, because a digest identifies the data among candidates.

    Args:
        path: The page, ``.html``.
        facts: The values.
        replace: Whether files of the same names are replaced.
    """
    text = json.dumps(facts, indent=2, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"
    for file, content in ((path, sheet_page(facts)), (path.with_suffix(".json"), text)):
        storage.write_text(file, content, sealed=False, private=True, replace=replace)


def digest(path: Path) -> tuple[str, str]:
    """Compute SHA-256 of a file, or over the output of ``sha256sum`` for all files of a folder, sorted by name.

    Returns:
        Hexadecimal digits, and what they are of.
    """
    if path.is_file():
        return storage.file_hash(path), "the file"
    names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    lines = "".join(f"{storage.file_hash(path / name)}  {name}\n" for name in names)
    return hashlib.sha256(
        lines.encode("utf-8", "surrogateescape")
    ).hexdigest(), "the lines of sha256sum for all files"


def today() -> datetime.date:
    """Return the date in UTC."""
    return datetime.datetime.now(datetime.UTC).date()
