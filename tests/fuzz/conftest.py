"""Limits that hold for every case."""

import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest
import torch  # noqa: F401  its libraries take more addresses than a test may: they are here before the limit

from fuzz.tally import COUNTS, SECONDS, asked

_SPARE = 4 * 2**30  # bytes that a test may take beyond what the process has


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What asks for all memory ends in a MemoryError, what never ends in a TimeoutError; nothing asks the network."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _SPARE, before[1]))
    waiting = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, waiting)
    resource.setrlimit(resource.RLIMIT_AS, before)
    few = [name for name, number in COUNTS.items() if number < asked(name)]
    COUNTS.clear()
    assert not few, f"filters drop cases of {few}"


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TimeoutError(f"no end after {SECONDS} seconds")
