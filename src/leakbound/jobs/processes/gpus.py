"""Several GPUs of one machine: each job takes the one with the fewest jobs, and keeps it until it ends.

A job holds the lock of a place on a GPU. Places are taken GPU by GPU, the first on each before the second on
any, and the system frees them however a job ends. On a cluster the queue does this, and nothing here is used.
"""

import os
import re
import tempfile
from pathlib import Path
from typing import IO

from leakbound.storage import locks

GPUS = "LEAKBOUND_GPUS"
"""Variable with the GPUs of this machine that jobs share: numbers or identifiers, with commas between them."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9/._-]{0,99}")
_PLACES = 256  # on a GPU
_HELD: list[IO[str]] = []  # until this process ends


def take_gpu(folder: Path | None = None) -> str | None:
    """Let this process see one GPU of those that the environment names, before it uses any. None if it names none.

    Called once more, it keeps the GPU. Where files cannot be locked, the first GPU is taken.

    Args:
        folder: Of the locks; by default one of this user's, for all runs on this machine.

    Raises:
        ValueError: If the variable holds something else than names of GPUs, or one of them twice.
    """
    names = [name.strip() for name in os.environ.get(GPUS, "").split(",")]
    if names == [""]:
        return None
    if not all(map(_NAME.fullmatch, names)) or len(set(names)) < len(names):
        raise ValueError(
            f"{GPUS} = {os.environ[GPUS]!r}: give different GPUs with commas between them, as 0,1,2,3"
        )
    if not _HELD:
        os.environ[_VISIBLE] = _free(
            names, folder or Path(tempfile.gettempdir(), f"leakbound-gpus-{os.getuid()}")
        )
    return os.environ[_VISIBLE]


def _free(names: list[str], folder: Path) -> str:
    """The GPU of the first place that nobody holds, which is held from now on."""
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
    raise ValueError(f"{GPUS}: {_PLACES} jobs hold each of {', '.join(names)}; let fewer run side by side")
