"""A server that the tests share, started when one needs it; and one that misbehaves as told."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_server import BadServer
from serving import Team, free_port

from leakbound.tracking.postgres import installed


@pytest.fixture(scope="session")
def team() -> Iterator[Team]:
    """A server on PostgreSQL that is not running yet; skips where PostgreSQL is not installed."""
    if not installed():
        pytest.skip("needs PostgreSQL's initdb and pg_ctl (Debian and Ubuntu: apt install postgresql)")
    home = Path(tempfile.mkdtemp(prefix="leakbound-test-"))
    home.chmod(0o711)  # pytest's own folders are closed to the user whom PostgreSQL runs as where root tests
    found = Team(home / "server", free_port())
    try:
        yield found
    finally:
        found.stop()
        shutil.rmtree(home)


@pytest.fixture
def bad_server() -> Iterator[BadServer]:
    """A server that answers as it is told."""
    with BadServer(None) as server:
        yield server


@pytest.fixture
def between(team: Team) -> Iterator[BadServer]:
    """A server that passes everything on to the team's, but for what it is told to spoil."""
    team.serve()
    with BadServer(team.port) as server:
        yield server
