"""Rows of a store, counted by SQL and held against the records that it was sent."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from sqlalchemy import create_engine, text
from team_server import TeamServer

from leakbound.tracking import Artifact, Point, RunRecord
from leakbound.tracking.sending import KEY

KINDS = ("runs", "params", "tags", "metrics", "artifacts")
START = 1_700_000_000_000  # milliseconds since 1970: of the records, which no clock may date
_KEPT = """
    FROM runs r
    JOIN experiments e ON e.experiment_id = r.experiment_id
    JOIN tags k ON k.run_uuid = r.run_uuid AND k.key = :key
    {join}
    WHERE r.lifecycle_stage = 'active'
"""
_RUNS = f"SELECT e.name, k.value, r.status, r.artifact_uri {_KEPT.format(join='')}"
_ROWS = {
    "params": f"SELECT e.name, k.value, p.key, p.value {_KEPT}".format(join="JOIN params p ON p.run_uuid = r.run_uuid"),
    "tags": f"SELECT e.name, k.value, t.key, t.value {_KEPT}".format(join="JOIN tags t ON t.run_uuid = r.run_uuid"),
    "metrics": f"SELECT e.name, k.value, m.key, m.step, m.timestamp, m.value {_KEPT}".format(
        join="JOIN metrics m ON m.run_uuid = r.run_uuid"
    ),
}
_OWN_TAGS = ("mlflow.", "leakbound.")  # beginnings of tags that MLflow and the sender add to those of a record

Rows = dict[str, Counter[tuple[object, ...]]]
"""Kind of rows to the rows, each with how often it is there."""


@dataclass(frozen=True)
class Count:
    """Rows of one kind: how many there should be and are, how many are missing, how many are there once more."""

    expected: int
    written: int
    lost: int
    doubled: int


@dataclass(frozen=True)
class Store:
    """A store under test.

    Attributes:
        uri: Where records are sent.
        database: Address of the database that holds them.
        artifacts: Folder of a server's artifacts; None for a store that is no server.
    """

    uri: str
    database: str
    artifacts: Path | None = None


def made_record(name: str, children: int, metrics: int, steps: int, files: Iterable[Path] = ()) -> RunRecord:
    """A record of the size that is asked for, with values that follow from their place."""
    points = tuple(
        Point(f"metric {number}", step, START + step, number + step / 1000)
        for number in range(metrics)
        for step in range(steps)
    )
    below = [
        RunRecord(f"{name}#{index}", "benchmark", f"replica {index}", START, START + steps, metrics=points)
        for index in range(children)
    ]
    return RunRecord(
        name,
        "benchmark",
        name,
        START,
        START + steps,
        params={f"setting {number}": f"{name} {number}" for number in range(20)},
        tags={f"tag {number}": f"{name} {number}" for number in range(10)},
        metrics=points,
        artifacts=tuple(Artifact.of(path) for path in files),
        children=tuple(below),
    )


def expected_rows(records: Iterable[RunRecord]) -> Rows:
    """Rows of a store that has taken the records once."""
    rows: Rows = {kind: Counter() for kind in KINDS}
    waiting = list(records)
    while waiting:
        record = waiting.pop()
        place = (record.experiment, record.key)
        rows["runs"][(*place, record.status)] += 1
        rows["params"].update((*place, *item) for item in record.params.items())
        rows["tags"].update((*place, *item) for item in record.tags.items() if not item[0].startswith(_OWN_TAGS))
        rows["metrics"].update((*place, one.key, one.step, one.timestamp, one.value) for one in record.metrics)
        rows["artifacts"].update(
            (*place, (Path(one.folder) / one.path.name).as_posix(), one.sha256) for one in record.artifacts
        )
        waiting += record.children
    return rows


def server_store(server: TeamServer) -> Store:
    """The store that a server serves."""
    return Store(server.uri, server.database, server.folder / "artifacts")


def stored_rows(store: Store) -> Rows:
    """Rows that a store holds of runs that are not in the bin."""
    engine = create_engine(store.database)
    key = {"key": KEY}
    try:
        with engine.connect() as connection:
            runs = [tuple(row) for row in connection.execute(text(_RUNS), key)]
            rows = {kind: Counter(tuple(row) for row in connection.execute(text(_ROWS[kind]), key)) for kind in _ROWS}
    finally:
        engine.dispose()
    rows["tags"] = Counter({row: n for row, n in rows["tags"].items() if not str(row[2]).startswith(_OWN_TAGS)})
    rows["runs"] = Counter(row[:3] for row in runs)
    rows["artifacts"] = Counter(
        (*row[:2], path.relative_to(folder).as_posix(), hashlib.sha256(path.read_bytes()).hexdigest())
        for row in runs
        for folder in [_artifact_folder(store, row[3])]
        for path in folder.rglob("*")
        if path.is_file()
    )
    return rows


def _artifact_folder(store: Store, uri: str) -> Path:
    """Folder of a run's artifacts."""
    path = unquote(urlparse(uri).path)
    return Path(path) if store.artifacts is None else store.artifacts / path.lstrip("/")


def compare(expected: Rows, stored: Rows) -> dict[str, Count]:
    """Both held against each other, for each kind of rows."""
    return {
        kind: Count(
            expected[kind].total(),
            stored[kind].total(),
            lost=(expected[kind] - stored[kind]).total(),
            doubled=(stored[kind] - expected[kind]).total(),
        )
        for kind in KINDS
    }


def table(counts: dict[str, Count]) -> str:
    """Counts to be read."""
    head = f"{'':10} {'expected':>9} {'written':>9} {'lost':>6} {'double':>7}"
    lines = [f"{kind:10} {one.expected:9} {one.written:9} {one.lost:6} {one.doubled:7}" for kind, one in counts.items()]
    return "\n".join([head, *lines])


def faults(name: str, counts: dict[str, Count]) -> list[str]:
    """Rows that are missing or there more than once, in words."""
    return [
        f"{name}: {one.lost} of {one.expected} {kind} are missing, {one.doubled} are double"
        for kind, one in counts.items()
        if one.lost or one.doubled
    ]


def conclude(found: dict[str, Any], wrong: list[str], out: Path | None) -> None:
    """Write what came out as JSON, if a file is asked for, and end with code 1 and what is wrong, if anything is."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if wrong:
        sys.exit("\n".join(wrong))
