"""One run of a configuration at a time, and no job that outlives its run.

The coordinator, Snakemake, holds a lock in the folder of results, and each of its jobs a share of a second one. Both
vanish with their holders. So the same command goes on with a run whose coordinator was killed: the jobs on its machine
have ended with it, the new coordinator waits for those elsewhere that are still at work, and one that leaves the queue
of a cluster only now finds that its run is over and does nothing.
"""

from __future__ import annotations

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

RUN = "LEAKBOUND_RUN"  # what a job belongs to: the run's token, a colon, the folder of results
COORDINATOR = "LEAKBOUND_COORDINATOR"  # process on this machine that a job ends with
_HELD: list[IO[str]] = []  # until this process ends


class SupersededError(ValueError):
    """A job of a run that another run has replaced."""


class BusyError(ValueError):
    """A configuration that is being run already."""


def lead(root: Path) -> None:
    """Be the only coordinator of a configuration until this process ends, and name the run to the jobs it starts.

    Waits for jobs of an earlier run that are still at work. Where the file system has no locks it says so and goes on.

    Args:
        root: Folder of the configuration's results.

    Raises:
        BusyError: If another process runs the configuration.
    """
    token = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
    with ExitStack() as until_held:
        file = until_held.enter_context(locks.opened(_coordinator(root)))
        try:
            if not locks.taken(file):
                raise BusyError(
                    f"{root}: {_holder(root)} runs this configuration already; wait for it, or stop it first"
                )
            _write(file, {"token": token, "host": socket.gethostname(), "pid": os.getpid(), "since": time.time()})
            with locks.opened(_jobs(root)) as jobs:
                if not locks.taken(jobs):
                    _say(f"{root}: waiting for jobs of an earlier run that are still at work; it goes on when they end")
                    locks.taken(jobs, wait=True)
        except locks.UnlockableError as error:
            _say(f"leakbound: {error}. Make sure yourself that nothing else runs this configuration.")
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
    file = locks.opened(_jobs(Path(folder)))
    _HELD.append(file)
    with suppress(locks.UnlockableError):
        locks.taken(file, shared=True, wait=True)
    if _read(Path(folder)).get("token") != token:
        raise SupersededError(f"{folder}: another run has begun; this job of an earlier one does nothing")


def follow() -> None:
    """Be a job: part of the run that the environment names, and end with the coordinator that it names, if any.

    Raises:
        SupersededError: If another run of the configuration has begun since.
    """
    join()
    coordinator = os.environ.get(COORDINATOR)
    if coordinator is not None:
        threading.Thread(target=_end_with, args=(int(coordinator),), daemon=True, name="coordinator").start()


def _end_with(pid: int) -> None:
    """Wait for the end of a process of this machine, then end at once: whoever goes on needs the files undisturbed."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        pass
    except (AttributeError, OSError):  # not Linux, or not allowed here
        while os.getppid() == pid:
            time.sleep(1)
    else:
        select.select([handle], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def _coordinator(root: Path) -> Path:
    """Lock file of the coordinator."""
    return root / ".coordinator.lock"


def _jobs(root: Path) -> Path:
    """Lock file that jobs share."""
    return root / ".jobs.lock"


def _write(file: IO[str], facts: dict[str, Any]) -> None:
    """Say in the lock file who holds it."""
    file.truncate(0)
    file.write(json.dumps(facts) + "\n")
    file.flush()


def _read(root: Path) -> dict[str, Any]:
    """What the coordinator's lock file says; nothing if it says nothing that can be understood."""
    try:
        facts = json.loads(_coordinator(root).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _holder(root: Path) -> str:
    """Who holds the coordinator's lock."""
    facts = _read(root)
    if not {"pid", "host", "since"} <= facts.keys():
        return "another process"
    since = datetime.fromtimestamp(facts["since"]).strftime("%Y-%m-%d %H:%M:%S")
    return f"process {facts['pid']} on {facts['host']} (since {since})"


def _say(text: str) -> None:
    """One line to whoever started the run."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
