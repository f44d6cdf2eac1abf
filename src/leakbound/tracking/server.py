"""An MLflow server for a team: PostgreSQL below, artifacts from a folder, passwords unless it is for one machine."""

from __future__ import annotations

import contextlib
import importlib.util
import ipaddress
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, replace
from pathlib import Path

from leakbound.storage import locks, write_json
from leakbound.tracking.postgres import Cluster, ServerError, tail, write_secret
from leakbound.tracking.store import failures, reason, sqlite_file, upgrade_store

PASSWORD = "LEAKBOUND_TRACKING_PASSWORD"
"""Environment variable with the administrator's password, read when accounts are first made."""
SHORTEST_PASSWORD = 12
"""Characters of that password, as MLflow has it."""
_FOLDER = "LEAKBOUND_TRACKING_FOLDER"  # in the environment of all processes of a server, to know them by
_DATABASES = ("postgresql", "mysql", "mssql", "sqlite:///")
_STARTING = 600.0  # seconds; a busy machine needs minutes, and a server that fails ends by itself
_ENDING = 30.0
_PRIVATE = ("MLFLOW_TRACKING_", "MLFLOW_AUTH_", PASSWORD, "LEAKBOUND_TRACKING_DATABASE")  # of the user as a client
_ACCOUNTS = """\
[mlflow]
default_permission = READ
database_uri = {database}
admin_username = {admin}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# A password is hashed on purpose so that it takes long: once a minute for each user, not for each request.
auth_cache_ttl_seconds = 60
"""


@dataclass(frozen=True)
class ServerSettings:
    """How to serve.

    Attributes:
        folder: Holds databases, artifacts, logs, accounts and the secrets of the server.
        host: Address to listen on; any but a loopback address asks for passwords.
        port: Port to listen on.
        database: Address of an existing database; None for a PostgreSQL of its own in the folder.
        admin: Name of the administrator, who makes the accounts of others.
        names: Further names and addresses by which clients call this machine.
        workers: Processes that answer.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 5000
    database: str | None = None
    admin: str = "admin"
    names: tuple[str, ...] = ()
    workers: int = 4

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True)
class RunningServer:
    """A server that answers.

    Attributes:
        address: Where clients find it.
        pid: Process, and group of processes, that serves.
        log: What it says.
        asks: Whether it asks for a password.
        password: File with the administrator's password, if it was made up here.
        started: Whether it was started just now, and not before.
    """

    address: str
    pid: int
    log: Path
    asks: bool
    password: Path | None
    started: bool = False


class _Files:
    """Where things lie in the folder of a server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.artifacts = self.folder / "artifacts"
        self.log = self.folder / "server.log"
        self.state = self.folder / "server.json"
        self.serving = self.folder / ".serving.lock"  # held by the server itself, so it is never stale
        self.command = self.folder / ".command.lock"  # one start or stop at a time
        self.accounts = self.folder / "accounts.db"
        self.accounts_settings = self.folder / "accounts.ini"
        self.password = self.folder / "admin-password"
        self.session_key = self.folder / "session-key"


def start_server(asked: ServerSettings) -> RunningServer:
    """Start a server in the background, with all that it needs, and wait until it answers.

    Returns:
        The server; the one that runs already if there is one.

    Raises:
        ServerError: If it cannot be started, and what to do about it.
    """
    files = _Files(asked.folder)
    _check(asked)
    if not files.folder.exists():
        by_root = os.geteuid() == 0  # whose PostgreSQL is another user, and must enter
        files.folder.mkdir(0o711 if by_root else 0o700, parents=True)
    with locks.exclusive(files.command):
        if running := running_server(files.folder):
            return running
        _end_processes(files)
        _check_port(asked)
        cluster = Cluster(files.folder)
        try:
            if asked.database is None:
                cluster.start("mlflow")
            file = sqlite_file(asked.database or "")  # which the server shall find from its own folder
            database = f"sqlite:///{file}" if file else asked.database or cluster.uri("mlflow")
            _prepare(database)
            return _serve(asked, files, database)
        except BaseException:
            _end_processes(files)
            cluster.stop()
            raise


def stop_server(folder: Path) -> bool:
    """End the server of a folder, then its PostgreSQL; whatever it has accepted is kept.

    Returns:
        Whether anything ran.

    Raises:
        ServerError: If PostgreSQL does not end.
    """
    files = _Files(folder)
    if not files.folder.is_dir():
        return False
    with locks.exclusive(files.command):
        served = _end_processes(files)
        return Cluster(files.folder).stop() or served


def running_server(folder: Path) -> RunningServer | None:
    """The server of a folder, if it runs; one that was killed does not, whatever files it has left."""
    files = _Files(folder)
    if not (files.state.is_file() and _is_serving(files)):
        return None
    state = json.loads(files.state.read_text(encoding="utf-8"))
    password = files.password if state["asks"] and files.password.is_file() else None
    return RunningServer(state["address"], state["pid"], files.log, state["asks"], password)


def _check(asked: ServerSettings) -> None:
    """Find out before anything is made what cannot be served.

    Raises:
        ServerError: If the database is none, or something is not installed.
    """
    if asked.database is not None and not asked.database.startswith(_DATABASES):
        raise ServerError(f"--database: must be an address that begins with {', '.join(_DATABASES)}")
    for option, value in (("--admin", asked.admin), *(("--name", name) for name in asked.names)):
        if not re.fullmatch(r"[\w.:@*-]+", value):
            raise ServerError(f"{option} {value!r}: may hold letters, digits and . : @ * - _ only")
    needed = {} if asked.is_local else {"flask_wtf": "Flask-WTF"}
    if asked.database is None or asked.database.startswith("postgresql"):
        needed["psycopg2"] = "psycopg2-binary"
    missing = [package for module, package in needed.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ServerError(f"a server needs {' and '.join(missing)}: pip install 'leakbound[server]'")
    given = os.environ.get(PASSWORD)
    if given is not None and len(given) < SHORTEST_PASSWORD:
        raise ServerError(f"{PASSWORD}: has {len(given)} characters; it needs at least {SHORTEST_PASSWORD}")


def _check_port(asked: ServerSettings) -> None:
    """Refuse an address that cannot be listened on, before the server says so somewhere in its log.

    Raises:
        ServerError: If another program listens there, or this machine has no such address.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(asked.host, asked.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        place = f"--host {asked.host} --port {asked.port}"
        raise ServerError(f"{place}: cannot be listened on ({error}); give another") from error


def _prepare(database: str) -> None:
    """Make the tables of MLflow, or bring them up to date, before several workers would do it at once.

    Raises:
        ServerError: If the database does not answer or refuses.
    """
    from sqlalchemy import create_engine

    expected: tuple[type[Exception], ...] = (*failures(), ImportError)  # also for a kind whose driver is not there
    try:
        if sqlite_file(database) is None:  # a file is made whole, below
            engine = create_engine(database)
            try:
                engine.connect().close()  # MLflow would try for minutes
            finally:
                engine.dispose()
        upgrade_store(database)
    except expected as error:
        raise ServerError(f"the database does not take MLflow's tables: {reason(error)}") from error


def _serve(asked: ServerSettings, files: _Files, database: str) -> RunningServer:
    """Start the processes, and note them when they answer."""
    files.artifacts.mkdir(0o700, exist_ok=True)
    files.state.unlink(missing_ok=True)
    words = [sys.executable, "-m", "mlflow", "server", "--host", asked.host, "--port", str(asked.port)]
    words += ["--workers", str(asked.workers), "--serve-artifacts", "--artifacts-destination", str(files.artifacts)]
    # A line for each request would fill the disk in the end; and on a busy machine a process takes longer to start than
    # the usual five seconds, after which another one would be started in its place, again and again.
    words += [f"--uvicorn-opts=--no-access-log --timeout-worker-healthcheck {_STARTING:.0f}"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)} | {
        _FOLDER: str(files.folder),
        "MLFLOW_BACKEND_STORE_URI": database,  # everybody on the machine can read the words of a command
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if not asked.is_local:
        words += ["--app-name", "basic-auth", "--allowed-hosts", ",".join(_names(asked))]
        environment |= _accounts(asked, files)
    with locks.opened(files.serving) as lock, files.log.open("ab") as log:
        locks.taken(lock, wait=True)
        process = subprocess.Popen(
            words,
            env=environment,
            cwd=files.folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=0o077,
            pass_fds=[lock.fileno()],
        )
        write_json(
            files.state, {"pid": process.pid, "address": _address(asked), "asks": not asked.is_local}, sealed=False
        )
    _wait_for(process, asked, files)
    server = running_server(files.folder)
    if server is None:
        raise ServerError(f"the server has ended at once; {files.log} ends with\n{tail(files.log)}")
    process.returncode = 0  # it outlives this process: nobody shall wait for it
    return replace(server, started=True)


def _wait_for(process: subprocess.Popen[bytes], asked: ServerSettings, files: _Files) -> None:
    """Wait until the server answers.

    Raises:
        ServerError: If it ends, or does not answer in time.
    """
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(asked.host, asked.host)
    end = time.monotonic() + _STARTING
    while not _answers(f"http://{_bracketed(here)}:{asked.port}/health"):
        if process.poll() is not None:
            raise ServerError(f"the server has ended at once; {files.log} ends with\n{tail(files.log)}")
        if time.monotonic() > end:
            raise ServerError(
                f"the server does not answer after {_STARTING:g} s; {files.log} ends with\n{tail(files.log)}"
            )
        time.sleep(0.2)


def _answers(address: str) -> bool:
    """Whether a server of this machine answers at an address without a password."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(address, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _accounts(asked: ServerSettings, files: _Files) -> dict[str, str]:
    """Environment of a server that asks for passwords; makes what is missing of its accounts."""
    if not files.session_key.exists():
        write_secret(files.session_key, secrets.token_urlsafe(32))
    database = f"sqlite:///{files.accounts}".replace("%", "%%")  # a sign of its own in such files
    settings = _ACCOUNTS.format(database=database, admin=asked.admin)
    files.accounts_settings.write_text(settings, encoding="utf-8")
    known = {}
    if PASSWORD in os.environ:
        known = {"MLFLOW_AUTH_ADMIN_PASSWORD": os.environ[PASSWORD]}
    else:
        if not (files.accounts.exists() or files.password.exists()):
            write_secret(files.password, secrets.token_urlsafe(18))
        if files.password.exists():
            known = {"MLFLOW_AUTH_ADMIN_PASSWORD": files.password.read_text(encoding="utf-8").strip()}
    return known | {
        "MLFLOW_AUTH_CONFIG_PATH": str(files.accounts_settings),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": files.session_key.read_text(encoding="utf-8").strip(),
    }


def _names(asked: ServerSettings) -> list[str]:
    """Names by which the server may be called, with and without its port; MLflow refuses all others."""
    found = {asked.host, "localhost", "127.0.0.1", "::1", socket.gethostname(), socket.getfqdn(), *asked.names}
    with contextlib.suppress(OSError):  # a machine that does not know its own name
        found |= {str(one[4][0]) for one in socket.getaddrinfo(socket.gethostname(), None)}
    hosts = sorted(_bracketed(name) for name in found)
    return [*hosts, *(f"{host}:{asked.port}" for host in hosts)]


def _address(asked: ServerSettings) -> str:
    """Where clients find the server."""
    host = socket.getfqdn() if asked.host in ("0.0.0.0", "::") else asked.host
    return f"http://{_bracketed(host)}:{asked.port}"


def _bracketed(host: str) -> str:
    """A name or address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def _is_serving(files: _Files) -> bool:
    """Whether the process lives that holds the lock of the server."""
    if not files.serving.exists():
        return False
    with locks.opened(files.serving) as lock:
        return not locks.taken(lock, shared=True)


def _end_processes(files: _Files) -> bool:
    """End the server and what is left of one whose first process was killed; returns whether there was any."""
    serving = _is_serving(files)
    if not (serving or _left(files)):
        return False
    if serving:
        _signal(files, signal.SIGTERM)
    end = time.monotonic() + (_ENDING if serving else 0)
    while (_is_serving(files) or _left(files)) and time.monotonic() < end:
        time.sleep(0.1)
    if _is_serving(files):
        _signal(files, signal.SIGKILL)
    for pid in _left(files):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with locks.opened(files.serving) as lock:
        locks.taken(lock, wait=True)
    return True


def _signal(files: _Files, number: signal.Signals) -> None:
    """Send a signal to all processes of a server that lives."""
    with contextlib.suppress(OSError):  # of a start that was killed there may be no note; what is left of it is killed
        os.killpg(json.loads(files.state.read_text(encoding="utf-8"))["pid"], number)


def _left(files: _Files) -> list[int]:
    """Living processes of the server, as far as the system has ``/proc`` to tell."""
    mark = os.fsencode(f"{_FOLDER}={files.folder}")
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found
