"""Logs of finished jobs. If the store is unavailable, their records stay in files until they are sent."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from leakbound.storage import DamagedFileError, limits, read_bytes, write_text
from leakbound.storage.locks import exclusive
from leakbound.tracking.run_records import RunRecord
from leakbound.tracking.sending import RunPlace, push
from leakbound.tracking.store import failures, reason, unreachable

_LOCK = ".lock"
"""Lock of the markers of a folder, so that send_pending never replaces a newer record by an older one."""


@dataclass(frozen=True)
class Outcome:
    """Outcome for one record, as its marker keeps it.

    Attributes:
        status: ``stored``, ``pending`` if the store did not accept it, or ``damaged`` if the marker cannot be
            read.
        reason: Reason why it is not stored.
        place: Identifiers of the run in the store, if it is stored.
        record: The record, if it can be read.
    """

    status: Literal["stored", "pending", "damaged"]
    reason: str = ""
    place: RunPlace | None = None
    record: RunRecord | None = None


_MARKER = TypeAdapter(Outcome)


def log_run(record: RunRecord, uri: str, marker: Path) -> Outcome:
    """Push a record and write it with its status to its marker. An unavailable store is no error.

    Args:
        record: The run.
        uri: Database or server.
        marker: File that keeps the record.
    """
    with exclusive(marker.parent / _LOCK):
        return _send(record, uri, marker)


def send_pending(folder: Path, uri: str, *, everything: bool = False) -> dict[Path, Outcome]:
    """Push the records that are still pending, and mark them as stored.

    Args:
        folder: Folder with markers, searched with its subfolders.
        uri: Database or server.
        everything: Whether to push stored records too, e.g. to fill a new store.

    Returns:
        Outcome by marker, for each record to send and each file that cannot be read. Once the store stops
        answering, the remaining records are not tried and stay pending.
    """
    outcomes = {}
    away: str | None = None
    for marker in sorted(path for path in folder.rglob("*.json") if not path.name.startswith(".")):
        with exclusive(marker.parent / _LOCK):
            kept = _read(marker)
            if kept.status == "stored" and not everything:
                continue
            if kept.record is not None:
                kept = Outcome("pending", away) if away else _send(kept.record, uri, marker)
        outcomes[marker] = kept
        if kept.status == "pending":
            away = away or unreachable(uri)
    return outcomes


def _send(record: RunRecord, uri: str, marker: Path) -> Outcome:
    """Push a record and write its marker."""
    try:
        outcome = Outcome("stored", place=push(record, uri), record=record)
    except failures() as error:
        outcome = Outcome("pending", reason(error), record=record)
    write_text(marker, _MARKER.dump_json(outcome).decode())
    return outcome


def _read(marker: Path) -> Outcome:
    """Read a marker."""
    try:
        return _MARKER.validate_json(read_bytes(marker, most=limits.TEXT))
    except DamagedFileError as error:
        return Outcome("damaged", str(error))
    except ValidationError as error:
        return Outcome(
            "damaged", str(DamagedFileError(marker, f"no record of a run: {error.errors()[0]['msg']}"))
        )
