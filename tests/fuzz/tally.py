"""How many cases are made, and that they are made."""

from __future__ import annotations

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
    "whole programs": 12,
}
"""Property to the cases that it is tried with; FUZZ=20000 tries about ten times as many."""
LEAST = 2000
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
    wanted = int(os.environ.get("FUZZ", "0")) * SHARES[name] / sum(SHARES.values())
    return max(SHARES[name], round(wanted))


def tried(name: str) -> Callable[[Callable], Callable]:
    """Settings of a property, by the name of its share."""
    return settings(max_examples=asked(name), deadline=None, suppress_health_check=list(HealthCheck))
