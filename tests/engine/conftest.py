"""The engine that most tests use."""

import pytest
from gaussians import engine_of

from leakbound import ChannelEngine


@pytest.fixture
def engine() -> ChannelEngine:
    """Seeded, for three uses."""
    return engine_of(seed=5)


@pytest.fixture(autouse=True)
def _owner(tmp_path_factory, monkeypatch):
    """Key of an account of the tests' own."""
    monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path_factory.getbasetemp() / "record.key"))
