"""Many jobs log at once: 16 processes write to a server on PostgreSQL, then to a SQLite file; every row is counted.

    python tests/benchmarks/tracking_load.py [--jobs 16] [--runs 3] [--children 3] [--metrics 8] [--steps 100]

Each job logs its runs one after the other, as the workflow does, and all jobs begin at the same moment. Each run has
children, metrics with steps, params, tags and two files. The server is started for this on a free port, and removed.
Afterwards SQL counts what the databases hold, and every file is hashed. Exit code 1 if a row is missing or there twice,
or if a job could not send at once and had to leave its record for `leakbound sync`.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stored_rows import (
    Count,
    Store,
    compare,
    conclude,
    expected_rows,
    faults,
    made_record,
    server_store,
    stored_rows,
    table,
)
from team_server import team_server

from leakbound.tracking import RunRecord, log_run

PATIENCE = 3600.0  # seconds for all jobs


@dataclass(frozen=True)
class Size:
    """Size of the load: jobs at once, runs of each, and what a run has."""

    jobs: int
    runs: int
    children: int
    metrics: int
    steps: int


@dataclass(frozen=True)
class Job:
    """Fate of one job's records.

    Attributes:
        pending: Reasons why records were not taken, one for each.
        again: Number of times that the store was tried again.
        seconds: Time of each record.
    """

    pending: list[str]
    again: int
    seconds: list[float]


class _Counting(logging.Handler):
    """Counts the messages of the sender, which are about attempts that failed."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Take a message."""
        self.count += 1


def records_of(job: int, size: Size, folder: Path) -> list[RunRecord]:
    """Records that a job logs; their files are made."""
    found = []
    for run in range(size.runs):
        files = [folder / f"job {job}" / f"run {run}" / name for name in ("provenance.json", "channel.bin")]
        files[0].parent.mkdir(parents=True, exist_ok=True)
        files[0].write_text(json.dumps({"job": job, "run": run}), encoding="utf-8")
        files[1].write_bytes(bytes([job % 256, run % 256]) * 20_000)
        found.append(made_record(f"job {job} run {run}", size.children, size.metrics, size.steps, files))
    return found


def write(job: int, size: Size, folder: Path, uri: str, ready: Any, outcomes: Any) -> None:
    """Log the records of one job; runs in a process of its own."""
    from leakbound.tracking.store import connect

    records = records_of(job, size, folder)
    counting = _Counting()
    logging.getLogger("leakbound.tracking.sending").addHandler(counting)
    if uri.startswith("http"):
        connect(uri)  # loads MLflow, so that all write at once
    ready.wait(PATIENCE)
    pending, seconds = [], []
    for number, record in enumerate(records):
        began = time.monotonic()
        outcome = log_run(record, uri, folder / f"job {job}" / "tracking" / f"{number}.json")
        seconds.append(time.monotonic() - began)
        if outcome.status != "stored":
            pending.append(outcome.reason)
    outcomes.put(Job(pending, counting.count, seconds))


def load(size: Size, folder: Path, store: Store) -> tuple[list[Job], float, dict[str, Count]]:
    """Let all jobs write to a store; returns what became of them, how long they took, and what the store holds."""
    context = multiprocessing.get_context("spawn")
    ready, outcomes = context.Barrier(size.jobs + 1), context.Queue()
    words = [(job, size, folder, store.uri, ready, outcomes) for job in range(size.jobs)]
    processes = [context.Process(target=write, args=arguments) for arguments in words]
    for process in processes:
        process.start()
    ready.wait(PATIENCE)
    began = time.monotonic()
    jobs = [outcomes.get(timeout=PATIENCE) for _ in processes]
    seconds = time.monotonic() - began
    for process in processes:
        process.join()
    records = [record for job in range(size.jobs) for record in records_of(job, size, folder)]
    return jobs, seconds, compare(expected_rows(records), stored_rows(store))


def summary(jobs: list[Job], seconds: float, counts: dict[str, Count]) -> dict[str, Any]:
    """The outcome, as plain values."""
    times = sorted(time for job in jobs for time in job.seconds)
    return {
        "rows": {kind: asdict(count) for kind, count in counts.items()},
        "pending": [reason for job in jobs for reason in job.pending],
        "tried_again": sum(job.again for job in jobs),
        "seconds": round(seconds, 2),
        "rows_per_second": round(sum(count.written for count in counts.values()) / seconds),
        "seconds_of_a_record": {"median": round(times[len(times) // 2], 2), "slowest": round(times[-1], 2)},
    }


def measure(name: str, size: Size, folder: Path, store: Store) -> tuple[dict[str, Any], list[str]]:
    """Write to one store and print what came out; returns it, and what is wrong with it."""
    jobs, seconds, counts = load(size, folder, store)
    found = summary(jobs, seconds, counts)
    print(f"\n{name}\n{table(counts)}")
    for key in ("tried_again", "seconds", "rows_per_second", "seconds_of_a_record"):
        print(f"{key.replace('_', ' '):20} {found[key]}")
    print(f"{'pending':20} {len(found['pending'])}", flush=True)
    return found, faults(name, counts) + [f"{name}: a record is pending: {reason}" for reason in found["pending"]]


def main() -> None:
    """Write to both stores, print and write what came out."""
    parser = argparse.ArgumentParser(description="Let many jobs log at once, and count every row.")
    parser.add_argument("--jobs", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3, help="of each job")
    parser.add_argument("--children", type=int, default=3, help="of each run")
    parser.add_argument("--metrics", type=int, default=8, help="of each run and each child")
    parser.add_argument("--steps", type=int, default=100, help="of each metric")
    parser.add_argument("--workers", type=int, default=4, help="processes of the server")
    parser.add_argument("--store", choices=["server", "sqlite", "both"], default="both")
    parser.add_argument("--out", type=Path, help="write the outcome here, JSON")
    asked = parser.parse_args()
    size = Size(asked.jobs, asked.runs, asked.children, asked.metrics, asked.steps)
    print(f"{size.jobs} jobs at once, {size.runs} runs each, {size.children} children each", flush=True)
    found: dict[str, Any] = {"size": asdict(size), "workers": asked.workers}
    wrong: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="leakbound-load-"))
    try:
        if asked.store in ("server", "both"):
            with team_server(asked.workers) as server:
                found["server"], more = measure("server on PostgreSQL", size, folder / "one", server_store(server))
                wrong += more
        if asked.store in ("sqlite", "both"):
            uri = f"sqlite:///{folder / 'mlflow.db'}"
            found["sqlite"], more = measure("SQLite file", size, folder / "other", Store(uri, uri))
            wrong += more
    finally:
        shutil.rmtree(folder)
    conclude(found, wrong, asked.out)


if __name__ == "__main__":
    main()
