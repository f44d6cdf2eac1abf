"""Illustrations from outside the package that meet with trouble the first time, or always; each notes its jobs."""

import os
import time
from pathlib import Path

import pandas as pd

ROWS = pd.DataFrame({"metric": "number", "value": [1.0, 2.0], "level": [1.0, 2.0]})


def slow(settings, *, dataset, moments, seed):
    if _first("slow"):
        time.sleep(3600)
    return ROWS


def hungry(settings, *, dataset, moments, seed):
    if _first("hungry"):
        eaten = b"x" * (1200 * 2**20)
        time.sleep(60)  # SLURM looks every few seconds
        assert eaten
    return ROWS


def broken(settings, *, dataset, moments, seed):
    _first("broken")
    raise ArithmeticError("as always")


def _first(name: str) -> bool:
    """Whether this is the first call; its job is noted in a file."""
    notes = Path(f"{name}.txt")
    first = not notes.exists()
    with notes.open("a") as file:
        file.write(os.environ["SLURM_JOB_ID"] + "\n")
    return first
