"""A configuration through SLURM while its jobs and its coordinator are killed, and once without a queue.

    python tests/benchmarks/slurm_faults.py --configfile config/config.yaml --kills 8 --coordinators 1

Prints as JSON what was counted, and which tables differ; the exit status is 0 only if the run finished and none does.
Tables of measured times (``efficiency``) always differ.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import yaml
from project_copy import environment
from slurm_queue import CONFIGFILE, PROFILE, Queue, QueuedJob, configured_project, why_no_slurm

from leakbound_lab.steps.kept import KEPT

RETRIES = 2  # of the profile: a job that is killed more often would fail, as it should


@dataclass
class Faults:
    """Kills jobs of a queue at random moments, none more often than it is retried.

    Args:
        queue: Whose jobs.
        planned: What shall happen, in order: ``scancel``, ``kill`` (a process of a job), or ``coordinator``.
        pause: Mean of the seconds, exponentially distributed, from one fault to the next.
        generator: Chooses moments and victims.
    """

    queue: Queue
    planned: list[str]
    pause: float
    generator: np.random.Generator
    done: Counter[str] = field(default_factory=Counter)
    suffered: Counter[str] = field(default_factory=Counter)
    next: float = 0.0

    def __post_init__(self) -> None:
        self._wait()

    def _wait(self) -> None:
        self.next = time.monotonic() + self.generator.exponential(self.pause)

    def strike(self, coordinator: subprocess.Popen[bytes]) -> None:
        """The next fault, if its time has come and there is something to hit; to be called every second or so."""
        if not self.planned or time.monotonic() < self.next:
            return
        victims = [job for job in self.queue.running() if self.suffered[job.work] < RETRIES]
        if not victims:
            return
        job = victims[self.generator.integers(len(victims))]
        kind = self.planned[0]
        if getattr(self, f"_{kind}")(job, coordinator):
            self.planned.pop(0)
            self.done[kind] += 1
            self._wait()

    def _scancel(self, job: QueuedJob, coordinator: subprocess.Popen[bytes]) -> bool:
        self.suffered[job.work] += 1
        subprocess.run(["scancel", job.job], check=True)
        return True

    def _kill(self, job: QueuedJob, coordinator: subprocess.Popen[bytes]) -> bool:
        processes = list(self.queue.processes(job))
        if not processes:
            return False
        try:
            processes[self.generator.integers(len(processes))].kill()
        except psutil.NoSuchProcess:
            return False
        self.suffered[job.work] += 1
        return True

    def _coordinator(self, job: QueuedJob, coordinator: subprocess.Popen[bytes]) -> bool:
        coordinator.kill()
        return True


def through_the_queue(queue: Queue, faults: Faults) -> tuple[int, str]:
    """Exit status of the last coordinator and the words of all; one that is killed is, after a while, followed."""
    log = queue.folder / "coordinator.log"
    while True:
        snakemake = queue.coordinator(log)
        try:
            while snakemake.poll() is None:
                time.sleep(1)
                queue.look()
                faults.strike(snakemake)
        except BaseException:
            snakemake.kill()
            queue.cancel()
            raise
        if snakemake.returncode != -signal.SIGKILL:
            return snakemake.returncode, log.read_text()
        time.sleep(faults.generator.exponential(faults.pause))
        recover = [f"{PROFILE}/recover", "--configfile", CONFIGFILE]
        with log.open("ab") as file:
            subprocess.run(
                recover, cwd=queue.folder, env=environment(queue.folder), check=True, stdout=file, stderr=file
            )


def without_a_queue(folder: Path, jobs: int) -> None:
    """The whole run on this machine."""
    command = ["snakemake", "--configfile", CONFIGFILE, "-j", str(jobs), "--quiet", "all"]
    subprocess.run(command, cwd=folder, env=environment(folder), check=True, stdout=sys.stderr)


def differing(first: Path, second: Path) -> tuple[int, list[str]]:
    """How many tables and arrays there are in two folders of results, and those whose bytes are not equal."""
    names = {
        path.relative_to(root)
        for root in (first, second)
        for suffix in ("parquet", "safetensors")
        for path in root.rglob(f"[!.]*.{suffix}")
        if KEPT not in path.parts  # in folders named by seals, of records with times
    }

    def same(name: Path) -> bool:
        ours, theirs = first / name, second / name
        return ours.is_file() and theirs.is_file() and ours.read_bytes() == theirs.read_bytes()

    return len(names), sorted(str(name) for name in names if not same(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configfile", type=Path, default=Path("config/config.yaml"))
    parser.add_argument("--kills", type=int, default=8, help="processes killed, and jobs cancelled: half each")
    parser.add_argument("--coordinators", type=int, default=1, help="coordinators killed")
    parser.add_argument("--pause", type=float, default=15.0, help="mean seconds between faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="side by side, without the queue")
    given = parser.parse_args()
    if reason := why_no_slurm():
        sys.exit(reason)

    generator = np.random.default_rng(given.seed)
    kinds = {"scancel": given.kills // 2, "kill": given.kills - given.kills // 2}
    kinds["coordinator"] = given.coordinators
    planned = list(generator.permutation([kind for kind, times in kinds.items() for _ in range(times)]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
        folders = (Path(work).resolve() / name for name in ("alone", "queued"))
        alone, queued = (configured_project(folder, given.configfile) for folder in folders)
        queue = Queue(queued)
        faults = Faults(queue, planned, given.pause, generator)
        with ThreadPoolExecutor() as threads:
            undisturbed = threads.submit(without_a_queue, alone, given.jobs)
            status, words = through_the_queue(queue, faults)
            undisturbed.result()
        preset = yaml.safe_load(given.configfile.read_text())["preset"]
        tables, unequal = differing(*(folder / "results" / preset for folder in (alone, queued)))
    report = {
        "finished": status == 0,
        "faults": dict(faults.done),
        "ended": dict(Counter(job.state for job in queue.seen.values())),
        "retries": len(re.findall("Trying to restart job", words)),
        "requeued": sum(int(job.restarts) for job in queue.seen.values()),
        "tables": tables,
        "differing": unequal,
    }
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    if status != 0:
        sys.stderr.write(words[-5000:])
    sys.exit(0 if status == 0 and not unequal else 1)


if __name__ == "__main__":
    main()
