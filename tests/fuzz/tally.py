"""How many cases are made of each property, and how long one may take."""

from __future__ import annotations

import functools
import math
import os
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings

SHARES = {"configuration": 760, "configuration text": 180, "catalogue": 150, "files of images": 110, "input files": 110}
"""Property to its part of the cases; they are as many together as FUZZ says, by default a sample of 200."""
COUNTS: Counter[str] = Counter()
"""Cases that a test has tried."""
SECONDS = 900
"""A case that takes longer waits for ever; the fixture of this folder ends it."""


def asked(name: str) -> int:
    """Cases of a property in one run of the tests."""
    return math.ceil(int(os.environ.get("FUZZ", 200)) * SHARES[name] / sum(SHARES.values()))


def tried(name: str, *positional: Any, **named: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Draw the cases of a property from strategies, each with a time of its own."""

    def decorated(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def timed(*given_values: Any, **given_names: Any) -> None:
            COUNTS[name] += 1
            signal.alarm(SECONDS)
            test(*given_values, **given_names)

        chosen = settings(max_examples=asked(name), deadline=None, suppress_health_check=list(HealthCheck))
        return chosen(given(*positional, **named)(timed))

    return decorated
