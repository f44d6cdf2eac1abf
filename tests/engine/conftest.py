"""The engine that most tests use."""

import pytest
from gaussians import gaussian

from leakbound import ChannelEngine, Leakage


@pytest.fixture
def engine() -> ChannelEngine:
    """Seeded, for three uses."""
    return ChannelEngine.for_data(gaussian(400), Leakage(3.0, uses=3), seed=5, value_range=(-50, 50))


@pytest.fixture(autouse=True)
def _owner(tmp_path_factory, monkeypatch):
    """Key of an account of the tests' own."""
    monkeypatch.setenv("LEAKBOUND_KEY", str(tmp_path_factory.getbasetemp() / "record.key"))
