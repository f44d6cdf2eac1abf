"""Costs of a tracking server that dies, hangs or has no room: times of trainings in turns, and every row counted.

    python tests/benchmarks/tracking_faults.py [--turns 7] [--rounds 4000] [--parts training sending full] [--out FILE]

`training`: the same training again and again, in turns without a server, with one that lives, with one whose processes
(PostgreSQL's too) get `kill -9` after a third of the time and that is started again after two thirds, and with one that
is stopped (SIGSTOP) after a third and hangs to the end. Prints the median ratio to the neighbour without a server, with
quartiles. Training has a core of its own where there are two. Then the server is killed, all trainings are logged, it
is started again, and what is pending is sent, twice. `sending`: the server is killed while a job logs. `full`: its
artifacts lie on a file system of 512 KiB without room, which then gets room; needs root, to mount it.

After each part SQL counts every row and every file is hashed: exit code 1 if one is missing or there twice.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from stored_rows import compare, conclude, expected_rows, faults, made_record, server_store, stored_rows, table
from team_server import COMMAND, TeamServer, team_server

from leakbound import storage
from leakbound.tracking import Outcome, RunFacts, RunRecord, describe_run, log_run, send_pending

ARMS = ("without", "living", "killed", "hanging")
AWAY, BACK = 1 / 3, 2 / 3  # parts of the training's time
SMALL_DISK = 512 * 1024  # bytes
LATE = 600.0  # seconds for a record to be stored before the server is killed


class Trainings:
    """Trainings of one size, by `leakbound step train`, each of a preset of its own.

    Args:
        folder: Where their files go.
        rounds: Steps of each.
        server: The server that shows their curves.
        core: What they run on.
    """

    def __init__(self, folder: Path, rounds: int, server: TeamServer, core: set[int]) -> None:
        self.folder, self.rounds, self.server, self.core = folder, rounds, server, core
        self.records: list[RunRecord] = []
        self.dataset = folder / "digits.safetensors"
        settings = {"dataset": "digits", "config": {"members": 400, "test": 400, "aux": 400}, "seed": 0}
        outputs = ["--out", self.dataset, "--provenance", folder / "digits.json"]
        _call("step", "prepare", "--settings", json.dumps(settings), *outputs)

    def train(self, preset: str, live: bool, disturb: Callable[[float], None] | None = None) -> float:
        """Train; returns seconds.

        Args:
            preset: Name that its curves go by.
            live: Whether the server shows them.
            disturb: Called with the time of the start, while training runs.
        """
        facts = RunFacts(preset, "digits/lenet/none/n1-b64", "digits", "lenet", "none", None, self.rounds, 64, 1)
        settings = {
            "dataset": "digits",
            "model": "lenet",
            "level": None,
            "batch_size": 64,
            "seed": 0,
            "device": "cpu",
            "defense": {"mechanism": "none"},
            "training": {"evaluations": 40, "learning_rates": [0.03]},
            "rounds": self.rounds,
            "replicas": 1,
            "slug": facts.slug,
        }
        folder = self.folder / preset
        rows, provenance = folder / "training.parquet", folder / "provenance.json"
        words = ["--settings", json.dumps(settings), "--dataset", self.dataset, "--rates", folder / "rates.parquet"]
        words += ["--weights", folder / "weights.safetensors", "--rows", rows, "--provenance", provenance]
        words += ["--live", self.server.uri, "--preset", preset] if live else []
        began = time.monotonic()
        with _on(self.core):
            process = subprocess.Popen([*COMMAND, "step", "train", *map(str, words)], stderr=subprocess.PIPE, text=True)
        if disturb is not None:
            disturb(began)
        _, said = process.communicate()
        seconds = time.monotonic() - began
        if process.returncode:
            sys.exit(f"the training fails:\n{said}")
        files = {"curves": storage.read_rows(rows), "provenance": storage.read_json(provenance)}
        self.records.append(describe_run(facts, files["curves"], {}, files["provenance"], files=[provenance]))
        return seconds

    def turn(self, arm: str, number: int, usual: float) -> float:
        """Train once in one of the ways; the server lives before and after."""

        def disturb(began: float) -> None:
            _until(began + AWAY * usual)
            self.server.send(signal.SIGKILL if arm == "killed" else signal.SIGSTOP)
            if arm == "killed":
                _until(began + BACK * usual)
                self.server.begin()

        seconds = self.train(f"{arm}{number}", arm != "without", disturb if arm in ("killed", "hanging") else None)
        if arm == "killed":
            self.server.wait()
        if arm == "hanging":
            self.server.send(signal.SIGCONT)
        return seconds


def _call(*words: object) -> None:
    """Call a command of the library."""
    subprocess.run([*COMMAND, *map(str, words)], check=True, stdout=subprocess.DEVNULL)


def _until(moment: float) -> None:
    """Wait until a moment of the monotonic clock."""
    time.sleep(max(0.0, moment - time.monotonic()))


@contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    """Let processes that are started here run on these cores only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def training(asked: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Trainings in turns, then all of them logged to a server that is dead, and sent when it is back."""
    first, *others = sorted(os.sched_getaffinity(0))
    with _on(set(others) or {first}), team_server(asked.workers) as server:
        trainings = Trainings(folder, asked.rounds, server, {first})
        usual = trainings.train("first", live=False)
        print(f"one training: {usual:.1f} s", flush=True)
        seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for number in range(asked.turns):
            for arm in ARMS[number % len(ARMS) :] + ARMS[: number % len(ARMS)]:
                seconds[arm].append(trainings.turn(arm, number, usual))
                print(f"turn {number}, {arm:8} {seconds[arm][-1]:8.1f} s", flush=True)
        found: dict[str, Any] = {"usual_seconds": round(usual, 2), "cores": 1 + len(others)}
        for arm in ARMS:
            found[arm] = _against(seconds[arm], seconds["without"])
            low, middle, high = found[arm]["ratio"]
            more = f"{found[arm]['more_seconds']:+.2f} s"
            print(f"{arm:10} {found[arm]['seconds']:8.2f} s  ratio {middle:.3f} ({low:.3f} to {high:.3f})  {more}")
        sent, wrong = _sent_later(server, trainings.records, folder / "tracking")
        return found | sent, wrong


def _against(seconds: list[float], without: list[float]) -> dict[str, Any]:
    """Median seconds, and the ratio to the neighbours without a server: quartiles of the pairs."""
    ratios = np.quantile(np.array(seconds) / np.array(without), [0.25, 0.5, 0.75])
    return {
        "seconds": round(float(np.median(seconds)), 2),
        "ratio": [round(float(ratio), 4) for ratio in ratios],
        "more_seconds": round(float(np.median(np.array(seconds) - np.array(without))), 3),
        "all_seconds": [round(one, 2) for one in seconds],
    }


def _sent_later(server: TeamServer, records: list[RunRecord], folder: Path) -> tuple[dict[str, Any], list[str]]:
    """Log records to a dead server, start it, send them twice, and count."""
    server.send(signal.SIGKILL)
    times, wrong = [], []
    for record in records:
        began = time.monotonic()
        outcome = log_run(record, server.uri, folder / f"{record.experiment}.json")
        times.append(time.monotonic() - began)
        wrong += [] if outcome.status == "pending" else [f"{record.experiment}: a dead server has taken it"]
    server.start()
    print(f"logging to the dead server: {np.median(times):.2f} s each", flush=True)
    outcomes = send_pending(folder, server.uri)
    again = send_pending(folder, server.uri, everything=True)
    found = {"seconds_of_logging_to_a_dead_server": [round(one, 3) for one in times]}
    return found | {"sent_later": len(outcomes)}, wrong + _counted(
        "training", server, records, [*outcomes, *again], found
    )


def _counted(
    name: str, server: TeamServer, records: list[RunRecord], outcomes: list[Outcome], found: dict[str, Any]
) -> list[str]:
    """Count what the server holds into ``found``; returns what is wrong with it."""
    counts = compare(expected_rows(records), stored_rows(server_store(server)))
    print(f"{name}\n{table(counts)}\n", flush=True)
    found["rows"] = {kind: asdict(count) for kind, count in counts.items()}
    left = [f"{name}: {one.marker.name} is {one.status}: {one.reason}" for one in outcomes if one.status != "stored"]
    return faults(name, counts) + left


def sending(asked: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The server is killed while a job logs one run after the other; what is left is sent when it is back."""
    file = folder / "file.bin"
    file.write_bytes(b"artifact" * 1000)
    records = [made_record(f"run {number}", 3, 8, 100, [file]) for number in range(asked.records)]
    first: list[Outcome] = []
    with team_server(asked.workers) as server:

        def job() -> None:
            for number, record in enumerate(records):
                first.append(log_run(record, server.uri, folder / "tracking" / f"{number}.json"))

        thread = threading.Thread(target=job)
        thread.start()
        end = time.monotonic() + LATE
        while len(first) < len(records) // 3 and time.monotonic() < end:
            time.sleep(0.01)
        server.send(signal.SIGKILL)
        thread.join()
        stored = sum(outcome.status == "stored" for outcome in first)
        print(f"killed while a job logged: {stored} of {len(records)} records were stored", flush=True)
        server.start()
        outcomes = send_pending(folder / "tracking", server.uri)
        found: dict[str, Any] = {"stored_before": stored, "sent_later": len(outcomes)}
        wrong = _counted("sending", server, records, outcomes, found)
        return found, wrong + ([] if 0 < stored < len(records) else ["sending: the kill came too early or too late"])


def full(asked: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The artifacts of the server have no room, then they have."""
    if os.geteuid() != 0:
        print("full: skipped, as only root can mount a small file system")
        return {"skipped": "not root"}, []
    file = folder / "file.bin"
    file.write_bytes(b"artifact" * 8000)
    records = [made_record(f"run {number}", 2, 4, 50, [file]) for number in range(3)]
    with team_server(asked.workers) as server:
        place = server.folder / "artifacts"
        place.mkdir(exist_ok=True)
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK}", "tmpfs", place], capture_output=True, text=True
        )
        if mounted.returncode:
            print(f"full: skipped, as no file system can be mounted: {mounted.stderr.strip()}")
            return {"skipped": mounted.stderr.strip()}, []
        try:
            (place / "ballast").write_bytes(bytes(SMALL_DISK - 8192))
            began = time.monotonic()
            first = [log_run(record, server.uri, folder / "tracking" / f"{n}.json") for n, record in enumerate(records)]
            seconds = (time.monotonic() - began) / len(records)
            wrong = [f"full: {one.marker.name} is stored without room" for one in first if one.status == "stored"]
            (place / "ballast").unlink()
            print(f"full: {seconds:.2f} s for each record without room: {first[0].reason}", flush=True)
            outcomes = send_pending(folder / "tracking", server.uri)
            found: dict[str, Any] = {"seconds_of_logging": round(seconds, 2), "sent_later": len(outcomes)}
            return found, wrong + _counted("full", server, records, outcomes, found)
        finally:
            subprocess.run(["umount", "-l", place], check=True)


def main() -> None:
    """Run the parts, print and write what came out."""
    parts = {"training": training, "sending": sending, "full": full}
    parser = argparse.ArgumentParser(description="Kill, stop and fill a tracking server; time trainings, count rows.")
    parser.add_argument("--parts", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--turns", type=int, default=7, help="trainings of each kind")
    parser.add_argument("--rounds", type=int, default=4000, help="steps of a training")
    parser.add_argument("--records", type=int, default=30, help="that are logged when the server is killed")
    parser.add_argument("--workers", type=int, default=2, help="processes of the server")
    parser.add_argument("--out", type=Path, help="write the outcome here, JSON")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="leakbound-faults-"))
    found: dict[str, Any] = {}
    wrong: list[str] = []
    try:
        for part in asked.parts:
            (folder / part).mkdir()
            found[part], more = parts[part](asked, folder / part)
            wrong += more
    finally:
        shutil.rmtree(folder)
    conclude(found, wrong, asked.out)


if __name__ == "__main__":
    main()
