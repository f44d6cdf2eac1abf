"""Locks that allow one run of a configuration at a time, and no job that outlives its run.

The coordinator, Snakemake, holds a lock in the folder of results. Each of its jobs holds a share of a second
lock. The system releases both when the process ends. So the same command resumes a run whose coordinator was
killed. The jobs on its machine have ended with it, and the new coordinator waits for jobs elsewhere that are
still running. A job that leaves the queue of a cluster later finds that its run is superseded, and skips its
work.
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

RUN = "LEAKBOUND_RUN"  # run of a job: token, colon, folder of results
COORDINATOR = "LEAKBOUND_COORDINATOR"  # process on this machine; jobs end with it
_COORDINATOR_LOCK = ".coordinator.lock"  # states its holder
_LONGEST_LOCK = 10_000  # characters of this file
_JOBS_LOCK = ".jobs.lock"  # shared by jobs
_HELD: list[IO[str]] = []  # until this process ends


class SupersededError(ValueError):
    """Raised in a job whose run was replaced by a newer one."""


class BusyError(ValueError):
    """Raised if a configuration is running already."""


def lead(root: Path) -> None:
    """Become the only coordinator of a configuration until this process ends, and name the run to its jobs.

    The function waits for jobs of an earlier run that are still running. If the file system has no locks, it
    prints a warning and continues.

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
                    holder = (
                        f"process {facts['pid']} on {facts['host']} "
                        f"(since {datetime.fromtimestamp(facts['since']):%Y-%m-%d %H:%M:%S})"
                    )
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
    """Take part in the run that the environment names until this process ends. Without a run, do nothing.

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
    """Call :func:`join`, and end this process with the coordinator that the environment names, if any.

    Raises:
        SupersededError: If another run of the configuration has begun since.
    """
    join()
    coordinator = os.environ.get(COORDINATOR)
    if coordinator is not None:
        threading.Thread(target=_end_with, args=(int(coordinator),), daemon=True, name="coordinator").start()


def _end_with(pid: int) -> None:
    """Wait until a process of this machine ends, then end at once, because the next run needs the files undisturbed."""
    try:
        select.select([os.pidfd_open(pid)], [], [])
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # not Linux, or not allowed here
        while os.getppid() == pid:
            time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)


def _read(root: Path) -> dict[str, Any]:
    """Read the facts in the coordinator's lock file. They are empty if the file is missing or damaged."""
    try:
        with (root / _COORDINATOR_LOCK).open(encoding="utf-8") as file:
            facts = json.loads(file.read(_LONGEST_LOCK))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}
