"""Locks that allow one run of a configuration at a time, and no job that outlives its run.

The coordinator, Snakemake, holds a lock in the folder of results. Each of its jobs holds a share of a second
lock. The system releases both when the process ends. So the same command resumes a run whose coordinator was
killed. The jobs on its machine have ended with it, and the new coordinator waits for jobs elsewhere that are
still running. A job that leaves the queue of a cluster later finds that its run is superseded, and skips its
work.

Where a machine has several GPUs, each job takes the one with the fewest jobs, and keeps it until it ends. A
job holds the lock of a place on a GPU. The first place of every GPU is taken before the second place of any.
The system releases a place however its job ends. On a cluster the queue assigns GPUs, and no place is taken.
"""

import json
import math
import os
import re
import select
import signal
import socket
import sys
import tempfile
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
_LONGEST_LOCK = 10_000_000  # characters of a lock's file
_JOBS_LOCK = ".jobs.lock"  # shared by jobs, each of which adds a line with its name
_LOOK_SECONDS = 0.2
_TELL_SECONDS = 60.0
_MOST_NAMED = 5
_HELD: list[IO[str]] = []  # until this process ends
GPUS = "LEAKBOUND_GPUS"
"""Variable with the GPUs of this machine that jobs share: numbers or identifiers, separated by commas."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9/._-]{0,99}")
_PLACES = 256  # on a GPU
_TAKEN: list[IO[str]] = []  # until this process ends


class SupersededError(ValueError):
    """Raised in a job whose run was replaced by a newer one."""


class BusyError(ValueError):
    """Raised if a configuration is running already."""


def lead(root: Path) -> None:
    """Become the only coordinator of a configuration until this process ends, and name the run to its jobs.

    The function waits for jobs of an earlier run that are still running, and says every minute which these are. If
    the file system has no locks, it prints a warning and continues.

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
                _wait_for(jobs, root)
                jobs.truncate(0)
        except locks.UnlockableError as error:
            sys.stderr.write(
                f"leakbound: {error}. Make sure yourself that nothing else runs this configuration.\n"
            )
            return
        until_held.pop_all()
    _HELD.append(file)
    os.environ[RUN] = f"{token}:{root.absolute()}"


def _wait_for(jobs: IO[str], root: Path) -> None:
    """Wait until no job holds the lock of an earlier run, and say again and again who may hold it."""
    last_message = -math.inf
    while not locks.acquire(jobs):
        if time.monotonic() - last_message >= _TELL_SECONDS:
            last_message = time.monotonic()
            sys.stderr.write(
                f"{root}: waiting for jobs of an earlier run, {_holders(jobs)}; it begins when they end. "
                "End those that hang: kill, or on a cluster scancel\n"
            )
        time.sleep(_LOOK_SECONDS)


def _holders(jobs: IO[str]) -> str:
    """Name the processes that have taken the lock since the last run began, but those that ended on this machine."""
    jobs.seek(0)
    names = []
    for line in jobs.read(_LONGEST_LOCK).splitlines():
        try:
            holder = json.loads(line)
            if holder["host"] != socket.gethostname() or _is_alive(int(holder["pid"])):
                names.append(f"process {holder['pid']} on {holder['host']} ({holder['called']})")
        except (ValueError, KeyError, TypeError):  # cut off, or of an earlier version
            continue
    listed = ", ".join(names[-_MOST_NAMED:]) or "without a name"
    return f"the last {_MOST_NAMED} of {len(names)}: {listed}" if len(names) > _MOST_NAMED else listed


def _is_alive(pid: int) -> bool:
    """Return whether a process of this machine is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
    called = " ".join([Path(sys.argv[0]).name, *sys.argv[1:4]])
    with suppress(OSError):  # a full disk
        file.write(
            json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "called": called[:200]}) + "\n"
        )
        file.flush()
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


def take_gpu(folder: Path | None = None) -> str | None:
    """Restrict this process to one GPU of those that the environment names, before it uses any.

    If it is called again, the process keeps the GPU. If files cannot be locked, it takes the first GPU.

    Args:
        folder: Folder of the locks. By default it is a folder of this user, for all runs on this machine.

    Returns:
        Name of the GPU, None if the environment names none.

    Raises:
        ValueError: If the variable contains anything but names of GPUs, or one of them twice.
    """
    names = [name.strip() for name in os.environ.get(GPUS, "").split(",")]
    if names == [""]:
        return None
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names):
        raise ValueError(
            f"{GPUS} = {os.environ[GPUS]!r}: give different GPUs, separated by commas, e.g. 0,1,2,3"
        )
    if not _TAKEN:
        os.environ[_VISIBLE] = _free(
            names, folder or Path(tempfile.gettempdir(), f"leakbound-gpus-{os.getuid()}")
        )
    return os.environ[_VISIBLE]


def _free(names: list[str], folder: Path) -> str:
    """Take the first free place and return its GPU."""
    for place in range(_PLACES):
        for name in names:
            file = locks.opened(folder / f"{name.replace('/', '_')}.{place}.lock")
            try:
                free = locks.acquire(file)
            except locks.UnlockableError:
                free = True
            if free:
                _TAKEN.append(file)
                return name
            file.close()
    raise ValueError(f"{GPUS}: {_PLACES} jobs use each of {', '.join(names)}; allow fewer jobs at once")
