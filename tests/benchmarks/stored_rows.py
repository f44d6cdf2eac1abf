"""What MLflow holds, counted by SQL and held against what it should hold; and a server to count on.

Shared by ``tracking_load.py`` and ``tracking_faults.py``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import psutil
from sqlalchemy import create_engine, text

from leakbound.tracking import Artifact, Point, RunRecord
from leakbound.tracking.postgres import Cluster
from leakbound.tracking.sending import KEY
from leakbound.tracking.server import running_server

COMMAND = [sys.executable, "-c", "from leakbound.cli.main import main; main()"]
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


class TeamServer:
    """A server as ``leakbound tracking-server`` starts it, on a free port, in a folder of its own.

    Args:
        workers: Processes that answer.
    """

    def __init__(self, workers: int = 4) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="leakbound-server-"))
        self.home.chmod(0o711)  # PostgreSQL runs as another user where root starts it
        self.folder = self.home / "server"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.workers = workers

    @property
    def store(self) -> Store:
        """The store that it serves."""
        database = Cluster(self.folder).uri("mlflow")
        return Store(f"http://127.0.0.1:{self.port}", database, self.folder / "artifacts")

    def begin(self) -> subprocess.Popen[str]:
        """Start it without waiting until it answers."""
        words = ["--folder", str(self.folder), "--port", str(self.port), "--workers", str(self.workers)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen([*COMMAND, "tracking-server", *words], text=True, **pipes)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.finish(self.begin())

    def finish(self, starting: subprocess.Popen[str]) -> None:
        """Wait until it answers."""
        said, _ = starting.communicate()
        if starting.returncode:
            sys.exit(f"the server does not start: {said}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, those of PostgreSQL too."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def processes(self) -> list[psutil.Process]:
        """Its processes: MLflow's, then PostgreSQL's."""
        server = running_server(self.folder)
        if server is None:
            sys.exit(f"the server in {self.folder} has ended by itself; its log is server.log there")
        postgres = (self.folder / "database" / "postmaster.pid").read_text(encoding="utf-8").split()[0]
        tops = [psutil.Process(server.pid), psutil.Process(int(postgres))]
        return [process for top in tops for process in (top, *top.children(recursive=True))]

    def remove(self) -> None:
        """End it, and remove all that it holds."""
        subprocess.run(
            [*COMMAND, "tracking-server-stop", "--folder", str(self.folder)], capture_output=True, check=True
        )
        shutil.rmtree(self.home)


@contextmanager
def team_server(workers: int = 4) -> Iterator[TeamServer]:
    """A server that answers, removed at the end."""
    server = TeamServer(workers)
    try:
        server.start()
        yield server
    finally:
        server.remove()


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
    """What a store holds that has taken the records once."""
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


def stored_rows(store: Store) -> Rows:
    """What a store holds in runs that are not in the bin."""
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
    """What is missing or more than once, in words."""
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
