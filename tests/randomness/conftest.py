"""Keys that secure noise takes."""

import os

import pytest

from leakbound.randomness.sources import KEY_BYTES


@pytest.fixture
def keys(monkeypatch) -> list[bytes]:
    """All keys that secure noise takes from the operating system from now on."""
    taken, urandom = [], os.urandom

    def watched(count: int) -> bytes:
        drawn = urandom(count)
        if count == KEY_BYTES:
            taken.append(drawn)
        return drawn

    monkeypatch.setattr(os, "urandom", watched)
    return taken
