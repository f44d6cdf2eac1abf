"""A server as a team has it, from the command that starts it to `kill -9`."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from bad_server import BadServer

from leakbound.tracking.postgres import Cluster
from leakbound.tracking.server import RunningServer, running_server

COMMAND = [sys.executable, "-c", "from leakbound.cli.main import main; main()"]


def called(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "LEAKBOUND_"))}
    command = [*COMMAND, *map(str, words)]
    return subprocess.run(command, env=own | environment, capture_output=True, text=True, check=False)


class Team:
    """A folder from which a server runs, when asked to; every test says what it needs."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.host = folder, port, ""
        self.local = f"http://127.0.0.1:{port}"

    @property
    def database(self) -> str:
        """Address of the database below."""
        return Cluster(self.folder).uri("mlflow")

    @property
    def process(self) -> RunningServer:
        """The server that runs."""
        found = running_server(self.folder)
        assert found is not None
        return found

    def serve(self, host: str = "127.0.0.1", **environment: str) -> str:
        """Let the server run on a host; returns what the command said, if it was not running there."""
        if running_server(self.folder) is not None:
            if host == self.host:
                return ""
            self.stop()
        words = ["--folder", self.folder, "--host", host, "--port", self.port, "--workers", 1]
        result = called("tracking-server", *words, **environment)
        assert result.returncode == 0, result.stdout + result.stderr
        self.host = host
        return result.stdout

    def stop(self) -> str:
        """End it; returns what the command said."""
        result = called("tracking-server-stop", "--folder", self.folder)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def kill(self) -> None:
        """`kill -9` to all of it, PostgreSQL too."""
        main = (self.folder / "database" / "postmaster.pid").read_text().split()[0]
        os.killpg(self.process.pid, signal.SIGKILL)
        os.kill(int(main), signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listens on."""
    with BadServer(None) as server:
        return server.port
