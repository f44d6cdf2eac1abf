"""A server that misbehaves as told."""

from collections.abc import Iterator

import pytest
from bad_server import BadServer


@pytest.fixture
def bad_server() -> Iterator[BadServer]:
    """A server that answers as it is told."""
    with BadServer(None) as server:
        yield server
