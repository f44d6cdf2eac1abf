"""Bounds on what is read, all in one place, so that a small file cannot fill the memory.

Each is compared with what the head of a file states, before memory is taken. They are far above what the
papers' largest results need. Text that people write has bounds of its own, in ``config.messages``.
"""

import math
import os
from pathlib import Path

from leakbound.storage.errors import TooLargeError

VARIABLE = "LEAKBOUND_READ_LIMIT"
"""Environment variable: a whole number that multiplies all of these bounds."""
HEAD = 2**22
"""Bytes of the part of a file that describes the rest; decoded it takes up to a hundred times as much."""
TEXT = 2**26
"""Bytes of JSON, CSV or SVG, which take up to some thirty times as much once they are parsed."""
WHOLE = 2**28
"""Bytes of any other file that is read at once."""
TABLE = 2**30
"""Bytes that the columns of a Parquet file may take in any case; it may take 8 times its own size too."""
EXPANSION = 8
PICTURES = 64
"""Bytes of pixels for each byte of the files that hold them, beyond what a table may take."""
ROW = 64
"""Bytes that a row of a table counts at least: indices and orders are made of rows."""
ARRAYS = 2**34
"""Bytes of arrays: weights, covariances, prepared images, checkpoints."""
PIXELS = 2**22
"""Pixels of an image that is decoded, e.g. 2,048×2,048; one of 32×32 is made of it."""


def factor() -> int:
    """Factor of all bounds, from :data:`VARIABLE`.

    Raises:
        ValueError: If it holds something else.
    """
    text = os.environ.get(VARIABLE, "1")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:10]) <= 10**6):
        raise ValueError(
            f"{VARIABLE} = {text[:40]!r}: must be a whole number from 1 to 1000000, the factor of all bounds"
        )
    return int(text)


def check_limit(path: Path | str, what: str, found: int, most: int) -> None:
    """Refuse more than is allowed.

    Args:
        path: The file, for the message.
        what: Things counted, e.g. ``bytes of text``.
        found: Number of them.
        most: Number that is allowed, before :data:`VARIABLE` multiplies it.

    Raises:
        TooLargeError: If there are more.
    """
    if found > most * factor():
        advice = f"If this is meant, set {VARIABLE}={math.ceil(found / most)}"
        advice += ", which multiplies all bounds on what is read."
        raise TooLargeError(path, f"has {found} {what}, allowed are {most * factor()}", advice)
