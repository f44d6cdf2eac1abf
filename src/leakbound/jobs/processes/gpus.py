"""Several GPUs of one machine: each job takes the one with the fewest jobs, and keeps it until it ends.

A job holds the lock of a place on a GPU. The first place of every GPU is taken before the second place of
any. The system releases a place however its job ends. On a cluster the queue assigns GPUs, and this module is
not used.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import IO

from leakbound.storage import locks

GPUS = "LEAKBOUND_GPUS"
"""Variable with the GPUs of this machine that jobs share: numbers or identifiers, separated by commas."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9/._-]{0,99}")
_PLACES = 256  # on a GPU
_HELD: list[IO[str]] = []  # until this process ends


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
    if not _HELD:
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
                _HELD.append(file)
                return name
            file.close()
    raise ValueError(f"{GPUS}: {_PLACES} jobs use each of {', '.join(names)}; allow fewer jobs at once")
