"""Time and memory that a job has used, as it measures itself: a table of one row, without a seal.

Its columns are those of Snakemake's benchmarks that mean the same. Snakemake samples a process from time to
time, and cannot see one that is forked elsewhere.
"""

import resource
import sys
import time
from pathlib import Path
from typing import NamedTuple

from leakbound import storage
from leakbound.storage import limits

_COLUMNS = ("s", "max_rss", "cpu_time")
_MEBIBYTE = 2**20


class Usage(NamedTuple):
    """Time and memory of a job, or 0 where it is not known.

    Attributes:
        seconds: Wall time.
        max_rss_mib: Most memory that one of its processes held at once, with what that shared with others.
        cpu_seconds: Of all of its threads and ended processes, in the kernel too.
    """

    seconds: float
    max_rss_mib: float
    cpu_seconds: float


def write(path: Path, began: float) -> None:
    """Write what this process, and those that it has waited for, have used.

    Args:
        path: File to write.
        began: Monotonic clock when this process began.
    """
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    usage = Usage(
        time.monotonic() - began,
        max(measured.ru_maxrss for measured in each) * unit / _MEBIBYTE,
        sum(measured.ru_utime + measured.ru_stime for measured in each),
    )
    with storage.atomic(path, sealed=False) as temporary:
        numbers = "\t".join(f"{value:.3f}" for value in usage)
        temporary.write_text("\t".join(_COLUMNS) + f"\n{numbers}\n", encoding="utf-8")


def read(path: Path) -> Usage:
    """Read the time and memory of a job.

    Raises:
        DamagedFileError: If the file is no such table.
    """
    text = storage.read_bytes(path, sealed=False, most=limits.TEXT).decode(errors="replace")
    try:
        header, row = (line.split("\t") for line in text.splitlines())
        values = dict(zip(header, map(float, row), strict=True))
        return Usage(*(values[column] for column in _COLUMNS))
    except (KeyError, ValueError) as error:
        raise storage.DamagedFileError(path, f"no table of time and memory: {error!r}") from error
