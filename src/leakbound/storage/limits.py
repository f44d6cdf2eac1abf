"""Errors about files, and limits on the size of all that are read, so that a small file cannot fill the memory.

Each limit is compared with the size that the head of a file states, before memory is allocated. The limits
are far above the papers' largest results. Text that people write has its own limits, in ``config.messages``. Each
error names the file and says what to do.
"""

import math
import os
from pathlib import Path

VARIABLE = "LEAKBOUND_READ_LIMIT"
"""Environment variable with a whole number that multiplies all of these limits."""
HEAD = 2**22
"""Bytes of the part of a file that describes the rest. Decoded it takes up to a hundred times as much."""
TEXT = 2**26
"""Bytes of JSON, CSV or SVG. Parsed they take up to about thirty times as much."""
WHOLE = 2**28
"""Bytes of any other file that is read as a whole."""
TABLE = 2**30
"""Bytes that the columns of a Parquet file may take. They may also take ``EXPANSION`` times its size, if
more."""
EXPANSION = 8
PICTURES = 64
"""Bytes of pixels for each byte of the files that hold them, if that is more than a table may take."""
ROW = 64
"""Least bytes that a row of a table counts, because indices and orders are as long as it has rows."""
ARRAYS = 2**34
"""Bytes of arrays: weights, covariances, prepared images, checkpoints."""
PIXELS = 2**22
"""Pixels of an image before it is resized, e.g. 2,048×2,048."""


class DamagedFileError(ValueError):
    """A file that is missing, truncated, altered, exchanged for another, or not of the kind that its name says.

    Attributes:
        reason: The fault found.
    """

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(
            f"{path}: cannot be read ({reason}). Delete it and make it again; `leakbound verify` finds all such files."
        )
        self.reason = str(reason)


class TooLargeError(DamagedFileError):
    """A file that would take more memory than is allowed. It has not been read.

    Args:
        path: The file.
        reason: The amount found and the amount allowed.
        advice: How to read it nevertheless.
    """

    def __init__(self, path: Path | str, reason: str, advice: str) -> None:
        ValueError.__init__(self, f"{path}: {reason}. {advice}")
        self.reason = reason


class FullDiskError(OSError):
    """A file that could not be written because the disk is full."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path}: cannot be written ({reason}). Make room and run the same command again.")


def factor() -> int:
    """Read the factor of all limits from :data:`VARIABLE`.

    Raises:
        ValueError: If the variable holds anything but such a number.
    """
    text = os.environ.get(VARIABLE, "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= 10**6):
        raise ValueError(
            f"{VARIABLE} = {text[:40]!r}: must be a whole number from 1 to 1000000, the factor of all bounds"
        )
    return int(text)


def check_limit(path: Path | str, what: str, count: int, most: int) -> None:
    """Refuse more than is allowed.

    Args:
        path: File, for the message.
        what: Noun of the things counted, e.g. ``bytes of text``.
        count: Number of them.
        most: Number that is allowed, before :data:`VARIABLE` multiplies it.

    Raises:
        TooLargeError: If there are more.
    """
    if count > most * factor():
        raise TooLargeError(
            path,
            f"has {count} {what}, allowed are {most * factor()}",
            f"If this is meant, set {VARIABLE}={math.ceil(count / most)}, which multiplies all bounds on what is "
            "read.",
        )
