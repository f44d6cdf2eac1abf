"""Kill anything: run a configuration undisturbed, then again under `kill -9` at random moments, and compare.

    python tests/benchmarks/chaos.py [--configfile config/config.yaml] [--kills 20] [--seed 0] [-j 2] [--out FILE]

Each run has a fresh copy of the project. Moments and victims come from the seed: the coordinator (Snakemake) with the
given probability, else any process below it. Whenever the coordinator ends before the work is done, killed or because a
job was, the same command is given again. After every kill, and at the end, what is there must equal the undisturbed
run: tables, figures, weights and scores byte for byte, provenance but for its times, each MLflow run once. And nothing
may be left over: no temporary file, no lock, no job without its coordinator, nothing to do. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
from project_copy import ROOT, copied_project, environment

from leakbound.storage import locks
from leakbound_lab.config import reading
from leakbound_lab.steps.kept import KEPT
from leakbound_lab.tracking.sending import KEY
from leakbound_lab.tracking.store import connect

BETWEEN_LOOKS = 0.02  # seconds
SPREAD = 0.9  # part of the undisturbed run's time over which moments are spread
PATIENCE = 60.0  # seconds that a process may outlive its coordinator before that counts as a failure
UNDISTURBED_ATTEMPTS = 3  # calls that may be needed after the last kill
CHANCE = ("logs/*", "benchmarks/*", "tracking*", "report.html", "*/checkpoint-*.pt")  # times, identifiers of runs
MEASURED = ("tables/efficiency.*", "figures/*/table02*", "claims.*", "scoreboard.*")  # made of training times
TIMES = ("seconds", "started")
STARTED = re.compile(r"^(?:local)?rule (\w+):$", re.MULTILINE)


@dataclass
class Outcome:
    """What a disturbed run was like."""

    kills: list[dict[str, Any]] = field(default_factory=list)
    longest_orphan: float = 0.0
    compared: set[str] = field(default_factory=set)
    differences: list[str] = field(default_factory=list)


class Run:
    """A copy of the project, and the command that a user would give in it.

    Args:
        folder: Where to put the copy; must not exist.
        configfile: Configuration, relative to the project.
        jobs: Jobs side by side.
    """

    def __init__(self, folder: Path, configfile: str, jobs: int) -> None:
        self.folder = copied_project(folder)
        (folder / "given.yaml").write_bytes(Path(configfile).read_bytes())
        self.config = reading.load(folder / "given.yaml")
        self.root = folder / self.config.root
        self.calls = 0
        self._command = ["snakemake", "--configfile", "given.yaml", "-j", str(jobs)]
        self._where = {"cwd": folder, "env": environment(folder)}

    def start(self) -> subprocess.Popen[bytes]:
        """Give the command."""
        self.calls += 1
        with (self.folder / "output.txt").open("ab") as log:
            return subprocess.Popen(self._command, **self._where, stdout=log, stderr=log)

    def output(self) -> str:
        """All that the command has said."""
        return (self.folder / "output.txt").read_text(encoding="utf-8", errors="replace")

    def jobs_started(self) -> int:
        """Jobs that coordinators have started so far."""
        logs = (self.folder / ".snakemake" / "log").glob("*.log")  # the screen shows no job that goes well
        return sum(name != "all" for log in logs for name in STARTED.findall(log.read_text(encoding="utf-8")))

    def says_nothing_to_do(self) -> bool:
        """Whether a dry run finds nothing to do."""
        found = subprocess.run([*self._command, "-n"], **self._where, capture_output=True, text=True)
        return found.returncode == 0 and "Nothing to be done" in found.stdout + found.stderr

    def files(self) -> set[str]:
        """Everything below the folder of results, hidden too, but locks and kept results, named by their inputs."""
        names = (path.relative_to(self.root).as_posix() for path in self.root.rglob("*"))
        return {name for name in names if not name.endswith(".lock") and not name.startswith(KEPT)}

    def free_locks(self) -> bool:
        """Whether the locks of the configuration can be taken."""
        with locks.opened(self.root / ".coordinator.lock") as one, locks.opened(self.root / ".jobs.lock") as other:
            return locks.acquire(one) and locks.acquire(other)

    def logged(self) -> dict[str, list[dict[str, Any]]]:
        """MLflow runs that are not in the bin, by experiment and key: status, params and last values."""
        found: dict[str, list[dict[str, Any]]] = {}
        if self.config.tracking.enabled:
            client = connect(f"sqlite:///{self.folder / self.config.tracking.uri.removeprefix('sqlite:///')}")
            for experiment in client.search_experiments():
                for run in client.search_runs([experiment.experiment_id], max_results=50_000):
                    values = {"status": run.info.status, "params": run.data.params, "metrics": run.data.metrics}
                    found.setdefault(f"{experiment.name}: {run.data.tags.get(KEY, '')}", []).append(values)
        return found


def compared(whole: Run, other: Run) -> tuple[set[str], list[str]]:
    """Files of a run that hold results, and those of them that are not as in the undisturbed run."""
    skipped = (*CHANCE, *(MEASURED if whole.config.efficiency is not None else ()))
    names, differing = set(), []
    for path in sorted(other.root.rglob("*")):
        name = path.relative_to(other.root).as_posix()
        if any(part.startswith(".") for part in name.split("/")) or any(fnmatch(name, one) for one in skipped):
            continue
        try:
            content = path.read_bytes()
        except (FileNotFoundError, IsADirectoryError):  # the coordinator removes files to have them made again
            continue
        names.add(name)
        expected = whole.root / name
        if not expected.is_file() or _comparable(name, content) != _comparable(name, expected.read_bytes()):
            differing.append(name)
    return names, differing


def _comparable(name: str, content: bytes) -> Any:
    """What has to be equal: the bytes, or of a record all but its times; a torn record equals nothing."""
    if not name.endswith(".json"):
        return content
    try:
        record = json.loads(content)
    except ValueError:
        return object()
    return {key: value for key, value in record.items() if key not in TIMES}


def disturb(run: Run, whole: Run, seconds: float, asked: argparse.Namespace) -> Outcome:
    """Run to the end under kills.

    Args:
        run: The run to disturb.
        whole: The undisturbed run, whose files its own must equal at every moment.
        seconds: Time over which kills are spread.
        asked: Options of the command line.
    """
    chance, outcome = random.Random(asked.seed), Outcome()
    moments = sorted(chance.uniform(0, seconds) for _ in range(asked.kills))
    began = time.monotonic()
    process = run.start()
    try:
        for moment in moments:
            while time.monotonic() - began < moment and process.poll() != 0:
                time.sleep(BETWEEN_LOOKS)
                process = process if process.poll() in (None, 0) else run.start()
            if process.poll() == 0:
                break
            kind, orphans = _kill_one(process, chance, asked.coordinator)
            outcome.kills.append({"seconds": round(time.monotonic() - began, 2), "kind": kind})
            print(f"{time.monotonic() - began:8.1f} s  {kind}", flush=True)
            if kind == "coordinator":
                process.wait()
                process = run.start()
                outcome.longest_orphan = max(outcome.longest_orphan, _longest_life(orphans))
            names, differing = compared(whole, run)
            outcome.compared |= names
            outcome.differences += [f"{name} at {moment:.1f} s" for name in differing]
        for _ in range(UNDISTURBED_ATTEMPTS):
            if process.wait() == 0:
                break
            process = run.start()
        if process.wait() != 0:
            sys.exit(f"the run does not end:\n{run.output()[-3000:]}")
    finally:
        for left in _below(process):
            left.kill()
        process.kill()
    return outcome


def _kill_one(
    process: subprocess.Popen[bytes], chance: random.Random, probability: float
) -> tuple[str, list[psutil.Process]]:
    """Kill the coordinator or something below it; returns what it was, and the processes that it has orphaned."""
    while True:
        below = _below(process)
        if not below or chance.random() < probability:
            process.kill()
            return "coordinator", below
        victim = chance.choice(below)
        try:
            step = re.search(r"leakbound step (\S+)", " ".join(victim.cmdline()))
            kind = f"leakbound {step[1]}" if step else victim.name()
            victim.kill()
        except psutil.NoSuchProcess:
            continue
        return kind, []


def _below(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Living descendants of the coordinator."""
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _longest_life(orphans: list[psutil.Process]) -> float:
    """Seconds until the last of some processes is gone."""
    began = time.monotonic()
    alive = psutil.wait_procs(orphans, timeout=PATIENCE)[1]
    if alive:
        sys.exit(f"still there {PATIENCE:g} s after their coordinator: {[process.cmdline() for process in alive]}")
    return round(time.monotonic() - began, 2) if orphans else 0.0


def report(whole: Run, disturbed: Run, outcome: Outcome, times: dict[str, float]) -> dict[str, Any]:
    """What came out, as plain values."""
    names, at_the_end = compared(whole, disturbed)
    differences = [*outcome.differences, *(f"{name} at the end" for name in at_the_end)]
    one, other = whole.logged(), disturbed.logged()
    keys = sorted(one.keys() | other.keys())
    jobs = {"undisturbed": whole.jobs_started(), "disturbed": disturbed.jobs_started()}
    return {
        "kills": outcome.kills,
        "by_kind": dict(sorted(Counter(kill["kind"] for kill in outcome.kills).items())),
        "calls_of_the_command": disturbed.calls,
        "jobs": jobs | {"redone": jobs["disturbed"] - jobs["undisturbed"]},
        "seconds": {name: round(value, 1) for name, value in times.items()},
        "longest_life_of_an_orphan": outcome.longest_orphan,
        "files_compared": len(outcome.compared | names),
        "mlflow_runs": len(keys),
        "differing_files": sorted(set(differences)),
        "differing_mlflow_runs": [key for key in keys if len(other.get(key, [])) != 1 or other[key] != one.get(key)],
        "left_over_or_missing": sorted(disturbed.files() ^ whole.files()),
        "lock_free": disturbed.free_locks(),
        "nothing_to_do": disturbed.says_nothing_to_do(),
    }


def faults(found: dict[str, Any], asked: int) -> list[str]:
    """What is wrong with what came out, in words."""
    lists = ("differing_files", "differing_mlflow_runs", "left_over_or_missing")
    wrong = [f"{name.replace('_', ' ')}: {found[name]}" for name in lists if found[name]]
    wrong += [] if found["lock_free"] else ["a lock is held that nobody holds"]
    wrong += [] if found["nothing_to_do"] else ["a dry run finds work"]
    if len(found["kills"]) < asked:
        wrong.append(f"the run ended after {len(found['kills'])} of {asked} kills; take fewer, or another seed")
    return wrong


def main() -> None:
    """Run twice, compare, print and write what came out."""
    parser = argparse.ArgumentParser(description="Kill random processes of a run, resume it, and compare.")
    parser.add_argument("--configfile", default=str(ROOT / "config" / "config.yaml"))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--coordinator", type=float, default=0.25, help="probability that it is the victim")
    parser.add_argument("--out", type=Path, help="write the outcome here, JSON")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="leakbound-chaos-"))
    whole, disturbed = (Run(folder / name, asked.configfile, asked.jobs) for name in ("undisturbed", "disturbed"))
    print(f"seed {asked.seed}, {asked.kills} kills, {asked.jobs} jobs side by side, in {folder}", flush=True)
    began = time.monotonic()
    if whole.start().wait() != 0:
        sys.exit(f"the undisturbed run fails:\n{whole.output()[-3000:]}")
    times = {"undisturbed": time.monotonic() - began}
    print(f"undisturbed: {times['undisturbed']:.1f} s, {whole.jobs_started()} jobs", flush=True)
    began = time.monotonic()
    outcome = disturb(disturbed, whole, SPREAD * times["undisturbed"], asked)
    times["disturbed"] = time.monotonic() - began
    options = {"configuration": whole.config.preset, "seed": asked.seed, "jobs_side_by_side": asked.jobs}
    found = options | report(whole, disturbed, outcome, times)
    wrong = faults(found, asked.kills)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for name, value in found.items():
        if name != "kills":
            print(f"{name.replace('_', ' '):30} {value}")
    if wrong:
        sys.exit("\n".join([*wrong, f"both runs are kept in {folder}"]))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
