"""Time and memory of a job, as it measures itself: a table of one row, without a seal.

Its columns are those of Snakemake's benchmarks with the same meaning. Snakemake samples a process from time
to time, and cannot see a process that another one has forked.
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
    """Time and memory of a job. Unknown values are 0.

    Attributes:
        seconds: Wall time in seconds.
        max_rss_mib: Most memory of one of its processes at once in MiB, including memory shared with others.
        cpu_seconds: CPU time in seconds of all its threads and ended processes, including time in the kernel.
    """

    seconds: float
    max_rss_mib: float
    cpu_seconds: float


def write(path: Path, began: float) -> None:
    """Write the time and memory of this process and of the ended processes that it waited for.

    Args:
        path: File to write.
        began: Monotonic clock when this process began, in seconds.

    Raises:
        OSError: If the file cannot be written.
    """
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    unit = 1 if sys.platform == "darwin" else 1024  # bytes
    usage = Usage(
        time.monotonic() - began,
        max(measured.ru_maxrss for measured in each) * unit / _MEBIBYTE,
        sum(measured.ru_utime + measured.ru_stime for measured in each),
    )
    numbers = "\t".join(f"{value:.3f}" for value in usage)
    storage.write_text(path, "\t".join(_COLUMNS) + f"\n{numbers}\n", sealed=False)


def read(path: Path) -> Usage:
    """Read the time and memory of a job.

    Args:
        path: File of :func:`write`.

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
