"""How many cases are made, and that they are made."""

from __future__ import annotations

import math
import os
import signal
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, settings

SHARES = {
    "configuration": 620,
    "configuration text": 180,
    "catalogue": 150,
    "catalogue text": 50,
    "images": 200,
    "tables": 190,
    "files of images": 110,
    "options": 240,
    "settings": 140,
    "input files": 110,
    "own records": 120,
    "whole programs": 12,
}
"""Property to its part of the cases; they are as many together as FUZZ says, by default a sample of a tenth."""
LEAST = 2000
"""Cases of all properties together that `make test-all` asks for. Of those on the command line it tries a tenth."""
COUNTS: Counter[str] = Counter()
"""Cases that have been tried since the tests began."""
SECONDS = 900
"""A case that takes longer waits for ever; the fixture of this folder ends it."""


def count(name: str) -> None:
    """Count a case, and start its time."""
    COUNTS[name] += 1
    signal.alarm(SECONDS)


def asked(name: str) -> int:
    """Cases of a property in one run of the tests."""
    return math.ceil(int(os.environ.get("FUZZ", LEAST // 10)) * SHARES[name] / sum(SHARES.values()))


def tried(name: str) -> Callable[[Callable], Callable]:
    """Settings of a property, by the name of its share."""
    return settings(max_examples=asked(name), deadline=None, suppress_health_check=list(HealthCheck))
