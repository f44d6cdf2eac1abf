"""One run of a configuration at a time, and no job that outlives its run.

The coordinator, Snakemake, holds a lock in the folder of results, and each of its jobs a share of a second
one. Both vanish with their holders. So the same command resumes a run whose coordinator was killed: the jobs
on its machine have ended with it, the new coordinator waits for those elsewhere that are still at work, and a
job that leaves the queue of a cluster later finds that its run is superseded and is skipped.
"""

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from leakbound.storage import locks

RUN = "LEAKBOUND_RUN"  # the run that a job belongs to: its token, a colon, the folder of results
COORDINATOR = "LEAKBOUND_COORDINATOR"  # process on this machine that a job ends with
_COORDINATOR_LOCK = ".coordinator.lock"  # says who holds it
_LONGEST_LOCK = 10_000  # characters of it
_JOBS_LOCK = ".jobs.lock"  # shared by jobs
_HELD: list[IO[str]] = []  # until this process ends


class SupersededError(ValueError):
    """A job of a run that another run has replaced."""


class BusyError(ValueError):
    """A configuration that is being run already."""


def lead(root: Path) -> None:
    """Be the only coordinator of a configuration until this process ends, and name the run to the jobs it starts.

    Waits for jobs of an earlier run that are still at work. Without locks in the file system it says so and
    goes ahead.

    Args:
        root: Folder of the configuration's results.

    Raises:
        BusyError: If another process runs the configuration.
    """
    host = socket.gethostname()
    pid = os.getpid()
    token = f"{host}-{pid}-{time.time_ns()}"
    with ExitStack() as until_held:
        file = until_held.enter_context(locks.opened(root / _COORDINATOR_LOCK))
        try:
            if not locks.acquire(file):
                holder = "another process"
                facts = _read(root)
                if {"pid", "host", "since"} <= facts.keys():
                    since = datetime.fromtimestamp(facts["since"])
                    holder = f"process {facts['pid']} on {facts['host']} (since {since:%Y-%m-%d %H:%M:%S})"
                raise BusyError(
                    f"{root}: {holder} runs this configuration already; wait for it, or stop it first"
                )
            file.truncate(0)
            file.write(json.dumps({"token": token, "host": host, "pid": pid, "since": time.time()}) + "\n")
            file.flush()
            with locks.opened(root / _JOBS_LOCK) as jobs:
                if not locks.acquire(jobs):
                    sys.stderr.write(f"{root}: waiting for jobs of an earlier run; it begins when they end\n")
                    locks.acquire(jobs, wait=True)
        except locks.UnlockableError as error:
            sys.stderr.write(
                f"leakbound: {error}. Make sure yourself that nothing else runs this configuration.\n"
            )
            return
        until_held.pop_all()
    _HELD.append(file)
    os.environ[RUN] = f"{token}:{root.absolute()}"


def join() -> None:
    """Be part of the run that the environment names until this process ends; without one, do nothing.

    Raises:
        SupersededError: If another run of the configuration has begun since.
    """
    token, _, folder = os.environ.get(RUN, "").partition(":")
    if not folder:
        return
    file = locks.opened(Path(folder, _JOBS_LOCK))
    _HELD.append(file)
    with suppress(locks.UnlockableError):
        locks.acquire(file, shared=True, wait=True)
    if _read(Path(folder)).get("token") != token:
        raise SupersededError(f"{folder}: superseded by a newer run; skipping")


def follow_coordinator() -> None:
    """Be a job: :func:`join` the run, and end with the coordinator that the environment names, if any."""
    join()
    coordinator = os.environ.get(COORDINATOR)
    if coordinator is not None:
        threading.Thread(target=_end_with, args=(int(coordinator),), daemon=True, name="coordinator").start()


def _end_with(pid: int) -> None:
    """Wait for the end of a process of this machine, then end at once: the next run needs the files undisturbed."""
    try:
        select.select([os.pidfd_open(pid)], [], [])
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # not Linux, or not allowed here
        while os.getppid() == pid:
            time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _read(root: Path) -> dict[str, Any]:
    """Facts in the coordinator's lock file. None if they are missing or damaged."""
    try:
        with (root / _COORDINATOR_LOCK).open(encoding="utf-8") as file:
            facts = json.loads(file.read(_LONGEST_LOCK))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
