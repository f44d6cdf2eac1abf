"""Logs of finished jobs. If the store is unavailable, their records stay in files until they are sent."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from leakbound.storage import DamagedFileError, read_json, write_text
from leakbound.storage.locks import exclusive
from leakbound.tracking.run_records import RunRecord
from leakbound.tracking.sending import OutdatedRecordError, RunPlace, push
from leakbound.tracking.store import check_uri, failures, reason, unreachable

Status = Literal["stored", "pending", "damaged"]
_LOCK = (
    ".lock"  # for the markers of a folder, so that send_pending never replaces a newer record by an older one
)


@dataclass(frozen=True)
class Outcome:
    """Outcome for one record.

    Attributes:
        marker: File that keeps the record.
        status: ``stored``, ``pending`` if the store did not accept it, or ``damaged`` if the file cannot be
            read.
        reason: Reason why it is not stored.
        place: Identifiers of the run in the store, if it is stored.
    """

    marker: Path
    status: Status
    reason: str = ""
    place: RunPlace | None = None


def log_run(record: RunRecord, uri: str, marker: Path) -> Outcome:
    """Push a record and write it with its status to its marker. An unavailable store is no error.

    Args:
        record: The run.
        uri: Database or server.
        marker: File that keeps the record.

    Raises:
        ValueError: If ``uri`` can never keep runs.
    """
    check_uri(uri)
    with exclusive(marker.parent / _LOCK):
        return _send(record, uri, marker)


def send_pending(folder: Path, uri: str, *, everything: bool = False) -> list[Outcome]:
    """Push the records that are still pending, and mark them as stored.

    Args:
        folder: Folder with markers, searched with its subfolders.
        uri: Database or server.
        everything: Whether to push stored records too, e.g. to fill a new store.

    Returns:
        One outcome for each record to send, and for each file that cannot be read. Once the store stops
        answering, the remaining records are not tried and stay pending.

    Raises:
        ValueError: If ``uri`` can never keep runs.
    """
    check_uri(uri)
    outcomes = []
    away: str | None = None
    for marker in sorted(path for path in folder.rglob("*.json") if not path.name.startswith(".")):
        with exclusive(marker.parent / _LOCK):
            try:
                status, record = _read(marker)
            except DamagedFileError as error:
                outcomes.append(Outcome(marker, "damaged", str(error)))
                continue
            if status == "stored" and not everything:
                continue
            outcomes.append(Outcome(marker, "pending", away) if away else _send(record, uri, marker))
        if outcomes[-1].status == "pending":
            away = away or unreachable(uri)
    return outcomes


def _send(record: RunRecord, uri: str, marker: Path) -> Outcome:
    """Push a record and write its marker, with artifacts as paths relative to it."""
    try:
        outcome = Outcome(marker, "stored", place=push(record, uri))
    except failures(OutdatedRecordError) as error:
        outcome = Outcome(marker, "pending", reason(error))
    place = outcome.place and outcome.place._asdict()
    value = {
        "status": outcome.status,
        "reason": outcome.reason,
        "place": place,
        "record": record.to_dict(marker.parent),
    }
    write_text(marker, json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n")
    return outcome


def _read(marker: Path) -> tuple[Status, RunRecord]:
    """Read the status and the record of a marker."""
    value = read_json(marker)
    try:
        return value["status"], RunRecord.from_dict(value["record"], marker.parent)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedFileError(marker, f"no record of a run: {error!r}") from error
