"""A server as a team has it, on a free port and a PostgreSQL of its own, from `make tracking-database` to `kill -9`."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-c", "from leakbound.cli.launch.main import main; main()"]
PATIENCE = 600.0  # seconds for a start: a busy machine needs minutes
_CHECKOUT = Path(__file__).resolve().parents[2]


def installed() -> bool:
    """True where PostgreSQL's programs are installed."""
    return shutil.which("initdb") is not None or any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


def unprivileged() -> list[str]:
    """Words before a command that must not be root, which neither MLflow's server nor PostgreSQL may be.

    Root becomes the user `nobody`, who may still read what is below /root.
    """
    if os.geteuid() != 0:
        return []
    user = pwd.getpwnam("nobody")
    powers = ["--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override", "--bounding-set=-all,+dac_override"]
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", *powers, "--"]


def owned(path: Path) -> None:
    """Give a folder to the account that :func:`unprivileged` commands run as."""
    if os.geteuid() == 0:
        user = pwd.getpwnam("nobody")
        os.chown(path, user.pw_uid, user.pw_gid)


def free_port() -> int:
    """A port that nobody listens on, and that no system gives to a program that connects to another one."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port of 100 is free")


class TeamServer:
    """A folder from which a server runs, when asked to.

    Args:
        workers: Processes that answer.
        passwords: Whether it asks for passwords on this machine too.
    """

    def __init__(self, workers: int = 4, *, passwords: bool = False) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="leakbound-server-"))
        owned(self._home)
        self.folder, self.log = self._home / "server", self._home / "server.log"
        self.database = f"postgresql:///postgres?host={self.folder / 'postgres'}"
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self.host, self._workers, self._passwords = "", workers, passwords
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process, and group of processes, that serves."""
        if self._process is None or self._process.poll() is not None:
            sys.exit(f"the server has ended by itself: {self._said()}")
        return self._process.pid

    def start(self, host: str = "127.0.0.1", **environment: str) -> None:
        """Let it run on a host, and wait until it answers."""
        if self._process is not None and host != self.host:
            self.stop()
        if self._process is None:
            self.begin(host, **environment)
        self.wait()

    def begin(self, host: str = "127.0.0.1", **environment: str) -> None:
        """Start it without waiting until it answers."""
        self._make("tracking-database")
        self._let_root_in()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "LEAKBOUND_"))}
        own |= {"LEAKBOUND_TRACKING_DATABASE": self.database, **environment}
        words = ["--folder", self.folder, "--host", host, "--port", self.port, "--workers", self._workers]
        if not self._passwords and host == "127.0.0.1":
            words.append("--no-passwords")
        command = [*unprivileged(), *COMMAND, "tracking-server", *map(str, words)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, env=own, stdout=log, stderr=log, start_new_session=True)
        self.host = host

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + PATIENCE
        while self.pid and time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"{self.uri}/health", timeout=5):
                return
            time.sleep(0.1)
        sys.exit(f"the server does not answer: {self._said()}")

    def stop(self) -> None:
        """End MLflow as Ctrl-C does, then PostgreSQL."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGINT)
            self._process.wait(PATIENCE)
            self._process = None
        self._make("tracking-database-stop")

    def send(self, number: signal.Signals) -> None:
        """Send a signal to all of its processes, those of PostgreSQL too; wait for the end of those that are killed."""
        found = self.processes()
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        if number == signal.SIGKILL and self._process is not None:
            self._process.wait(PATIENCE)
            self._process = None
            psutil.wait_procs(found, PATIENCE)  # no other PostgreSQL starts until the system has let go of this one

    def processes(self) -> list[psutil.Process]:
        """Its processes: MLflow's, then PostgreSQL's."""
        main = (self.folder / "postgres" / "postmaster.pid").read_text(encoding="utf-8").split()[0]
        tops = [psutil.Process(self.pid), psutil.Process(int(main))]
        return [process for top in tops for process in (top, *top.children(recursive=True))]

    def remove(self) -> None:
        """End it, and remove all that it holds."""
        self.stop()
        shutil.rmtree(self._home)

    def _make(self, target: str) -> None:
        words = [
            *unprivileged(),
            "make",
            "--silent",
            "--directory",
            str(_CHECKOUT),
            target,
            f"TRACKING_FOLDER={self.folder}",
        ]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            sys.exit(f"make {target} fails: {done.stdout}")

    def _let_root_in(self) -> None:
        """PostgreSQL knows its users from the system; who runs this looks at the rows that the server stored."""
        if os.geteuid() == 0:
            sql = "DO $$ BEGIN CREATE ROLE root SUPERUSER LOGIN; EXCEPTION WHEN duplicate_object THEN END $$"
            psql = ["psql", "-q", "-h", str(self.folder / "postgres"), "-d", "postgres", "-c", sql]
            subprocess.run([*unprivileged(), *psql], check=True)

    def _said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-2000:]


@contextmanager
def team_server(workers: int = 4) -> Iterator[TeamServer]:
    """A server that answers, removed at the end."""
    server = TeamServer(workers)
    try:
        server.start()
        yield server
    finally:
        server.remove()
