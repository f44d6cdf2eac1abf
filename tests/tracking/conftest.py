"""A server that the tests share, started when one needs it; and one that misbehaves as told."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_server import BadServer

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from team_server import TeamServer, installed


@pytest.fixture(scope="session")
def team() -> Iterator[TeamServer]:
    """A server on PostgreSQL that is not running yet; skips where PostgreSQL is not installed."""
    if not installed():
        pytest.skip("needs PostgreSQL's initdb and pg_ctl (Debian and Ubuntu: apt install postgresql)")
    server = TeamServer(workers=1)
    try:
        yield server
    finally:
        server.remove()


@pytest.fixture
def bad_server() -> Iterator[BadServer]:
    """A server that answers as it is told."""
    with BadServer(None) as server:
        yield server


@pytest.fixture
def between(team: TeamServer) -> Iterator[BadServer]:
    """A server that passes everything on to the team's, but for what it is told to spoil."""
    team.start()
    with BadServer(team.port) as server:
        yield server
