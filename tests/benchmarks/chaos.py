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
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import psutil
from project_copy import ROOT, copied_project, environment

from leakbound.config import reading
from leakbound.storage import locks
from leakbound.tracking.sending import KEY
from leakbound.tracking.store import connect

BETWEEN_LOOKS = 0.02  # seconds
SPREAD = 0.9  # part of the undisturbed run's time over which moments are spread
PATIENCE = 60.0  # seconds that a process may outlive its coordinator before that counts as a failure
UNDISTURBED_ATTEMPTS = 3  # calls that may be needed after the last kill
CHANCE = ("logs/*", "benchmarks/*", "tracking/*", "report.html", ".*.lock", "*/.lock")  # times, identifiers of runs
MEASURED = ("tables/efficiency.*", "figures/*/table02*", "claims.*", "scoreboard.*")  # made of training times
TIMES = ("seconds", "started")
STARTED = re.compile(r"^(?:local)?rule (\w+):$", re.MULTILINE)


@dataclass(frozen=True)
class Kill:
    """One kill: when, in seconds since the disturbed run began, and what."""

    seconds: float
    kind: str


@dataclass
class Outcome:
    """What a disturbed run was like."""

    kills: list[Kill] = field(default_factory=list)
    calls: int = 0
    looks: int = 0
    longest_orphan: float = 0.0
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
        self.command = ["snakemake", "--configfile", "given.yaml", "-j", str(jobs)]
        self._log = folder / "output.txt"

    def start(self) -> subprocess.Popen[bytes]:
        """Give the command."""
        with self._log.open("ab") as log:
            where = {"cwd": self.folder, "env": environment(self.folder)}
            return subprocess.Popen(self.command, **where, stdout=log, stderr=log)

    def says_nothing_to_do(self) -> bool:
        """Whether a dry run finds nothing to do."""
        where = {"cwd": self.folder, "env": environment(self.folder)}
        found = subprocess.run([*self.command, "-n"], **where, capture_output=True, text=True)
        return found.returncode == 0 and "Nothing to be done" in found.stdout + found.stderr

    def jobs_started(self) -> int:
        """Jobs that coordinators have started so far."""
        names = STARTED.findall(self._log.read_text(encoding="utf-8", errors="replace"))
        return sum(name != "all" for name in names)

    def end_of_output(self) -> str:
        """The last that the command has said."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]

    def files(self) -> set[str]:
        """Everything below the folder of results, hidden or not."""
        return {path.relative_to(self.root).as_posix() for path in self.root.rglob("*")}

    def free_locks(self) -> bool:
        """Whether the locks of the configuration can be taken."""
        with locks.opened(self.root / ".coordinator.lock") as one, locks.opened(self.root / ".jobs.lock") as other:
            return locks.acquire(one) and locks.acquire(other)

    def logged(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """MLflow runs that are not in the bin, by experiment and key: status, params and last values."""
        uri = f"sqlite:///{self.folder / self.config.tracking.uri.removeprefix('sqlite:///')}"
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        client = connect(uri)
        for experiment in client.search_experiments():
            page = client.search_runs([experiment.experiment_id], max_results=50_000)
            for run in page:
                values = {"status": run.info.status, "params": run.data.params, "metrics": run.data.metrics}
                found.setdefault((experiment.name, run.data.tags.get(KEY, "")), []).append(values)
        return found


class Comparison:
    """Files of a disturbed run held against those of an undisturbed one.

    Args:
        whole: The undisturbed run.
        measured: Whether the configuration measures times, which no two runs share.
    """

    def __init__(self, whole: Run, measured: bool) -> None:
        self._whole = whole
        self._skipped = (*CHANCE, *(MEASURED if measured else ()))
        self._seen: dict[str, tuple[int, int]] = {}
        self.compared: set[str] = set()

    def differing(self, other: Run) -> Iterator[str]:
        """Files that are there and are not as in the undisturbed run; each is read again only when it was replaced."""
        for path in sorted(other.root.rglob("*")):
            name = path.relative_to(other.root).as_posix()
            if not self._counts(name):
                continue
            try:
                if not path.is_file():
                    continue
                facts = path.stat()
                content = path.read_bytes() if self._seen.get(name) != (facts.st_ino, facts.st_mtime_ns) else None
            except FileNotFoundError:  # the coordinator has removed it to have it made again
                continue
            if content is None:
                continue
            expected = self._whole.root / name
            if not expected.is_file() or _comparable(name, content) != _comparable(name, expected.read_bytes()):
                yield name
            else:
                self._seen[name] = (facts.st_ino, facts.st_mtime_ns)
                self.compared.add(name)

    def _counts(self, name: str) -> bool:
        """Whether a file holds results: neither chance, nor hidden, nor a checkpoint on the way."""
        hidden = any(part.startswith(".") for part in name.split("/"))
        return not (hidden or fnmatch(name, "*/checkpoint-*.pt") or any(fnmatch(name, one) for one in self._skipped))


def _comparable(name: str, content: bytes) -> Any:
    """What has to be equal: the bytes, or of a record all but its times; a torn record equals nothing."""
    if not name.endswith(".json"):
        return content
    try:
        record = json.loads(content)
    except ValueError:
        return object()
    return {key: value for key, value in record.items() if key not in TIMES}


def disturb(run: Run, comparison: Comparison, seconds: float, asked: argparse.Namespace) -> Outcome:
    """Run to the end under kills.

    Args:
        run: The run to disturb.
        comparison: What its files must equal at every moment.
        seconds: Time over which kills are spread.
        asked: Options of the command line.
    """
    chance, outcome = random.Random(asked.seed), Outcome()
    moments = sorted(chance.uniform(0, seconds) for _ in range(asked.kills))
    began = time.monotonic()
    process = _call(run, outcome)
    try:
        for moment in moments:
            while time.monotonic() - began < moment and process.poll() != 0:
                time.sleep(BETWEEN_LOOKS)
                process = process if process.poll() in (None, 0) else _call(run, outcome)
            if process.poll() == 0:
                break
            kind, orphans = _kill_one(process, chance, asked.coordinator)
            outcome.kills.append(Kill(round(time.monotonic() - began, 2), kind))
            print(f"{outcome.kills[-1].seconds:8.1f} s  {kind}", flush=True)
            if kind == "coordinator":
                process.wait()
                process = _call(run, outcome)
                outcome.longest_orphan = max(outcome.longest_orphan, _longest_life(orphans))
            outcome.looks += 1
            outcome.differences += [f"{name} at {moment:.1f} s" for name in comparison.differing(run)]
        for _ in range(UNDISTURBED_ATTEMPTS):
            if process.wait() == 0:
                break
            process = _call(run, outcome)
        if process.wait() != 0:
            sys.exit(f"the run does not end:\n{run.end_of_output()}")
    finally:
        for left in _below(process):
            left.kill()
        process.kill()
    return outcome


def _call(run: Run, outcome: Outcome) -> subprocess.Popen[bytes]:
    """Give the command, and count it."""
    outcome.calls += 1
    return run.start()


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
            kind = _kind(victim)
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


def _kind(process: psutil.Process) -> str:
    """What a process is called in the table: the command that it runs."""
    words = process.cmdline()
    for place, word in enumerate(words[:-2]):
        if Path(word).name == "leakbound":
            return f"leakbound {words[place + 2]}"  # after `step`
    return process.name()


def _longest_life(orphans: list[psutil.Process]) -> float:
    """Seconds until the last of some processes is gone."""
    began = time.monotonic()
    alive = psutil.wait_procs(orphans, timeout=PATIENCE)[1]
    if alive:
        sys.exit(f"still there {PATIENCE:g} s after their coordinator: {[process.cmdline() for process in alive]}")
    return round(time.monotonic() - began, 2) if orphans else 0.0


def _undisturbed(run: Run) -> float:
    """Seconds that the run takes when nobody disturbs it."""
    began = time.monotonic()
    if run.start().wait() != 0:
        sys.exit(f"the undisturbed run fails:\n{run.end_of_output()}")
    return time.monotonic() - began


def _logged_differently(whole: Run, disturbed: Run) -> tuple[int, list[str]]:
    """Number of MLflow runs, and those that are missing, doubled, unfinished or hold other values."""
    if not whole.config.tracking.enabled:
        return 0, []
    one, other = whole.logged(), disturbed.logged()
    names = [f"{experiment}: {key}" for experiment, key in sorted(one.keys() | other.keys())]
    differing = [
        name
        for name, place in zip(names, sorted(one.keys() | other.keys()), strict=True)
        if len(other.get(place, [])) != 1 or other[place] != one.get(place)
    ]
    return len(names), differing


def report(whole: Run, disturbed: Run, outcome: Outcome, comparison: Comparison, times: dict[str, float]) -> dict:
    """What came out, as plain values."""
    differences = [*outcome.differences, *(f"{name} at the end" for name in comparison.differing(disturbed))]
    there = {name for name in disturbed.files() ^ whole.files() if not name.endswith(".lock")}
    runs, logged = _logged_differently(whole, disturbed)
    jobs = {"undisturbed": whole.jobs_started(), "disturbed": disturbed.jobs_started()}
    by_kind = Counter(kill.kind for kill in outcome.kills)
    return {
        "kills": [vars(kill) for kill in outcome.kills],
        "by_kind": dict(sorted(by_kind.items())),
        "calls_of_the_command": outcome.calls,
        "jobs": jobs | {"redone": jobs["disturbed"] - jobs["undisturbed"]},
        "seconds": {name: round(value, 1) for name, value in times.items()},
        "longest_life_of_an_orphan": outcome.longest_orphan,
        "files_compared": len(comparison.compared),
        "looks_during_the_run": outcome.looks,
        "mlflow_runs": runs,
        "differing_files": sorted(set(differences)),
        "differing_mlflow_runs": logged,
        "left_over_or_missing": sorted(there),
        "lock_free": disturbed.free_locks(),
        "nothing_to_do": disturbed.says_nothing_to_do(),
    }


def faults(found: dict[str, Any], asked: int) -> list[str]:
    """What is wrong with what came out, in words."""
    wrong = [f"{name}: {found[name]}" for name in ("differing_files", "differing_mlflow_runs") if found[name]]
    wrong += [f"left over or missing: {found['left_over_or_missing']}"] if found["left_over_or_missing"] else []
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
    parser.add_argument("--folder", type=Path, help="put both runs here and keep them; by default they are removed")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="leakbound-chaos-"))
    whole, disturbed = (Run(folder / name, asked.configfile, asked.jobs) for name in ("undisturbed", "disturbed"))
    print(f"seed {asked.seed}, {asked.kills} kills, {asked.jobs} jobs side by side, in {folder}", flush=True)
    times = {"undisturbed": _undisturbed(whole)}
    print(f"undisturbed: {times['undisturbed']:.1f} s, {whole.jobs_started()} jobs", flush=True)
    comparison = Comparison(whole, measured=whole.config.efficiency is not None)
    began = time.monotonic()
    outcome = disturb(disturbed, comparison, SPREAD * times["undisturbed"], asked)
    times["disturbed"] = time.monotonic() - began
    options = {"configuration": whole.config.preset, "seed": asked.seed, "jobs_side_by_side": asked.jobs}
    found = options | report(whole, disturbed, outcome, comparison, times)
    wrong = faults(found, asked.kills)
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for name, value in found.items():
        if name != "kills":
            print(f"{name.replace('_', ' '):30} {value}")
    if wrong:
        sys.exit("\n".join([*wrong, f"both runs are kept in {folder}"]))
    if asked.folder is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
