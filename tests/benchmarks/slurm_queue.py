"""A copy of the project whose jobs go through SLURM, and what SLURM says about them."""

import shutil
import subprocess
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from project_copy import copied_project, environment

PROFILE = "profiles/slurm"
CONFIGFILE = "config/copied.yaml"  # of a copy
FIELDS = {
    "job": "JobID:16",
    "state": "State:24",
    "memory": "MinMemory:24",
    "time": "TimeLimit:24",
    "cpus": "NumCPUs:16",
    "gpus": "tres-per-job:64",
    "restarts": "RestartCnt:16",
    "work": "Comment:512",
    "folder": "WorkDir:512",
}
QueuedJob = namedtuple("QueuedJob", FIELDS)
"""A job as squeue shows it; ``work`` names its rule and wildcards, or the rules of its group."""


def why_no_slurm() -> str | None:
    """Why no job can be sent to SLURM from here; None if one can."""
    if shutil.which("sinfo") is None:
        return "SLURM is not installed here"
    asked = ["sinfo", "--noheader", "--format", "%T"]
    try:
        found = subprocess.run(asked, capture_output=True, text=True, timeout=30)
    except subprocess.TimeoutExpired:
        return "SLURM does not answer within 30 seconds"
    if found.returncode != 0:
        return f"SLURM does not answer: {found.stderr.strip().splitlines()[-1]}"
    states = {state.rstrip("*$~#") for state in found.stdout.split()}
    if not states & {"idle", "mixed", "allocated", "completing"}:
        return f"no node of this SLURM takes jobs: {', '.join(sorted(states)) or 'there is none'}"
    return None


def widest_node() -> int:
    """CPUs of the largest node."""
    found = subprocess.run(["sinfo", "--noheader", "--format", "%c"], capture_output=True, text=True, check=True)
    return max(int(cpus.rstrip("+")) for cpus in found.stdout.split())


def configured_project(folder: Path, configfile: Path) -> Path:
    """Copy the project into a new folder, with ``configfile`` as its configuration."""
    copied_project(folder)
    shutil.copy(configfile, folder / CONFIGFILE)
    return folder


@dataclass
class Queue:
    """Jobs of one folder in SLURM.

    SLURM forgets finished jobs after some minutes, so ``seen`` holds each as it was last shown.
    """

    folder: Path
    seen: dict[str, QueuedJob] = field(default_factory=dict)

    def look(self) -> list[QueuedJob]:
        """The jobs as they are now."""
        command = ["squeue", "--me", "--states=all", "--noheader", "--noconvert", "--Format", ",".join(FIELDS.values())]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        rows = (QueuedJob(*line.split()) for line in shown.splitlines() if len(line.split()) == len(FIELDS))
        jobs = [row for row in rows if row.folder == str(self.folder)]
        self.seen |= {row.job: row for row in jobs}
        return jobs

    def running(self) -> list[QueuedJob]:
        return [job for job in self.look() if job.state == "RUNNING"]

    def cancel(self) -> None:
        """Cancel what is queued or runs, and wait until it has ended."""
        ended = {"CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}
        while left := [job.job for job in self.look() if job.state not in ended]:
            subprocess.run(["scancel", *left], check=True)
            time.sleep(1)

    def processes(self, job: QueuedJob) -> Iterator[psutil.Process]:
        """Python processes of a job that runs on this machine: two of Snakemake and the command that computes."""
        for process in psutil.process_iter():
            try:
                inside = process.environ().get("SLURM_JOB_ID") == job.job and process.cwd() == str(self.folder)
                if inside and "python" in "".join(process.cmdline()[:1]):
                    yield process
            except psutil.Error:
                continue

    def coordinator(self, log: Path, *options: str) -> subprocess.Popen[bytes]:
        """Start Snakemake with the profile of the cluster; what it says is added to ``log``."""
        cores = ["--cores", str(min(4, widest_node()))]
        # The profile looks after ten seconds whether a job has ended, and ten later each time that none has.
        often = ["--slurm-init-seconds-before-status-checks", "2"]
        command = ["snakemake", "--workflow-profile", PROFILE, "--configfile", CONFIGFILE, *cores, *often, *options]
        with log.open("ab") as file:
            return subprocess.Popen(
                command, cwd=self.folder, env=environment(self.folder), stdout=file, stderr=subprocess.STDOUT
            )

    def run(self, *options: str, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, str]:
        """Exit status and words of a whole run; ``meanwhile`` is called every second or so."""
        log = self.folder / "coordinator.log"
        snakemake = self.coordinator(log, *options)
        try:
            while snakemake.poll() is None:
                time.sleep(1)
                self.look()
                meanwhile()
        finally:
            snakemake.kill()
            self.cancel()
        return snakemake.returncode, log.read_text()
