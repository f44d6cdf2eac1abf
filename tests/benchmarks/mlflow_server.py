"""An MLflow server on a free port, started by a command, and asked as its clients ask."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE = 600.0  # seconds for a start: a busy machine needs minutes
QUIET = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def free_port() -> int:
    """A port that nobody listens on, and that no system gives to a program that connects to another one."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 100):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port of 100 is free")


def own_words(home: Path, port: int) -> list[str]:
    """Command of MLflow's server as MLflow starts it, but for further processes."""
    words = [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1"]
    return [*words, "--backend-store-uri", f"sqlite:///{home}/runs.db", "--artifacts-destination", f"{home}/served"]


class Server:
    """A running server, and how to ask it.

    Args:
        command: Words that start it.
        home: Its folder.
        port: Where it listens.
        environment: Variables of its own; the attribute `login` is the name and password of requests that give none.
    """

    def __init__(self, command: list[str], home: Path, port: int, **environment: str) -> None:
        self.home, self.port, self.login = home, port, ""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "LEAKBOUND_"))}
        with (home / "log").open("wb") as log:
            self.process = subprocess.Popen(
                command, env=own | QUIET | environment, cwd=home, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def uri(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(OSError):
                if self.ask("health")[0] == 200:
                    return
            time.sleep(0.1)
        sys.exit(f"the server does not answer: {self.said()[-2000:]}")

    def said(self) -> str:
        """All that it has printed."""
        return (self.home / "log").read_text(errors="replace")

    def ask(
        self, path: str, body: Any = None, method: str | None = None, login: str | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, text and headers of an answer."""
        login = self.login if login is None else login
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        if login:
            given["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.uri}/{path}", data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    def status(self, path: str, body: Any = None, method: str | None = None, **given: Any) -> int:
        """Status of an answer."""
        return self.ask(path, body, method, **given)[0]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Signal its group of processes, and wait for the end."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)


@contextmanager
def running(command: list[str], home: Path, port: int, **environment: str) -> Iterator[Server]:
    """A server that answers, and ends with the block."""
    server = Server(command, home, port, **environment)
    try:
        server.wait()
        yield server
    finally:
        server.stop()
