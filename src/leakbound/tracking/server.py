"""MLflow's server for one user or a team: `mlflow server` with an application reduced to what runs need."""

import ipaddress
import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from leakbound.tracking.application import ARTIFACTS
from leakbound.tracking.store import failures, is_database, reason, sqlite_file, upgrade_store

PASSWORD = "LEAKBOUND_TRACKING_PASSWORD"
"""Environment variable with the administrator's password, read when accounts are first made."""
_SHORTEST_PASSWORD = 12  # characters, as MLflow has it
# Prefixes of variables that belong to the user as a client, or that would change the settings below.
_PRIVATE = ("MLFLOW_", "_MLFLOW_", "GUNICORN_", "LEAKBOUND_TRACKING_")
_EVERYWHERE = ("0.0.0.0", "::")
# With its default server MLflow mounts an assistant that executes commands for any client on this machine. The timeout
# is minutes, because workers start slowly on a busy machine and files may be large.
_GUNICORN = "--worker-class gthread --threads 8 --timeout 600 --no-control-socket"
_ACCOUNTS = """\
[mlflow]
default_permission = READ
database_uri = sqlite:///{database}
admin_username = {admin}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
# Hashing a password is slow on purpose, so it is done once a minute for each user and not for each request.
auth_cache_ttl_seconds = 60
"""
_LOGIN = """
It asks for a name and a password: {admin}, and what is in {file}, or what {variable} held at the first start.
"""


def is_local(host: str) -> bool:
    """Return True if only this machine can reach a server that listens on ``host``."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def prepare_database(database: str) -> None:
    """Make or upgrade MLflow's tables, before several workers would do so at once.

    Raises:
        ValueError: If ``database`` is no address of a database, or if the database does not answer or
            refuses.
    """
    from sqlalchemy import create_engine

    if not is_database(database):
        raise ValueError("--database: must be the address of a database (postgresql://..., sqlite:///...)")
    try:
        if sqlite_file(database) is None:
            create_engine(database).connect().close()  # MLflow would try for minutes
        upgrade_store(database)
    except failures(ImportError) as error:  # also if the driver is missing
        advice = "docs/tracking.md says how to make one, and what a server needs"
        raise ValueError(f"the database does not take MLflow's tables: {reason(error)}\n{advice}") from error


def refuse_root() -> None:
    """Refuse to serve as root.

    Raises:
        ValueError: If this process is root.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        raise ValueError(
            "not as root: whoever found a hole in MLflow would have the whole machine. Start it from an ordinary "
            "account, e.g. runuser -u NAME -- leakbound ..., to which the folder of the results belongs"
        )


def server_words(artifacts: Path, host: str, port: int, workers: int, *, passwords: bool) -> list[str]:
    """Compose the command of the server, which everybody on the machine can read.

    Raises:
        ValueError: If the server cannot listen on ``host`` and ``port``, or would admit others without a
            password.
    """
    if not (passwords or is_local(host)):
        raise ValueError(f"--host {host}: others than this machine need passwords; leave out --no-passwords")
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, UnicodeError) as error:
        raise ValueError(
            f"--host {host} --port {port}: cannot be listened on ({error}); give another"
        ) from error
    return [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--host",
        bracketed(host),
        "--port",
        str(port),
        "--workers",
        str(workers),
        f"--gunicorn-opts={_GUNICORN}",
        "--serve-artifacts",
        "--artifacts-destination",
        str(artifacts.absolute()),
        "--app-name",
        "leakbound" if passwords else "leakbound-without-passwords",
    ]


def server_environment(
    database: str, artifacts: Path, host: str, port: int, names: Sequence[str]
) -> dict[str, str]:
    """Compose the environment of a server, with its database and the host names that clients may use.

    Raises:
        ValueError: If one of ``names`` contains a wildcard or another character that names do not have.
    """
    hosts = {"localhost", "127.0.0.1", "::1", *names}
    if host not in _EVERYWHERE:  # browsers would accept it as a name of this machine
        hosts.add(host)
    if not is_local(host):
        hosts |= {socket.gethostname(), socket.getfqdn()}
        with suppress(OSError):  # a machine may not know its own name
            hosts |= {str(host_name[4][0]) for host_name in socket.getaddrinfo(socket.gethostname(), None)}
    for name in names:
        if not re.fullmatch(r"[\w.:-]+", name):
            raise ValueError(f"--name {name!r}: may hold letters, digits and . : - _ only")
    allowed = [f"{bracketed(host_name)}{end}" for host_name in sorted(hosts) for end in ("", f":{port}")]
    return {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)} | {
        ARTIFACTS: str(artifacts.absolute()),
        "MLFLOW_BACKEND_STORE_URI": database,
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(allowed),
        "MLFLOW_SERVER_ENABLE_GRAPHQL_AUTH": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONWARNINGS": "ignore",
        "PYTHONSAFEPATH": "1",  # no code from the folder that it is started in
    }


def given_password(admin: str) -> str | None:
    """Return the administrator's password from the environment, if there is one.

    Raises:
        ValueError: If the name or the password is not allowed.
    """
    if not re.fullmatch(r"[\w.@-]+", admin):
        raise ValueError(f"--admin {admin!r}: may hold letters, digits and . @ - _ only")
    password = os.environ.get(PASSWORD)
    if password is not None and len(password) < _SHORTEST_PASSWORD:
        raise ValueError(
            f"{PASSWORD}: has {len(password)} characters; it needs at least {_SHORTEST_PASSWORD}"
        )
    return password


def check_folder(folder: Path) -> None:
    """Refuse a folder that others could change. A missing folder passes.

    Raises:
        ValueError: If it, or a link to it, belongs to another account.
    """
    for seen in (folder.lstat, folder.stat):
        with suppress(FileNotFoundError):
            if hasattr(os, "geteuid") and seen().st_uid != os.geteuid():
                raise ValueError(f"{folder}: belongs to another account; give a folder of your own")


def prepare_folder(folder: Path) -> None:
    """Make a folder of a server, or make an existing one private.

    Raises:
        ValueError: As in :func:`check_folder`.
    """
    folder.mkdir(0o700, parents=True, exist_ok=True)
    check_folder(folder)
    folder.chmod(0o700)


def prepare_accounts(
    folder: Path, admin: str, password: str | None, environment: dict[str, str]
) -> dict[str, str]:
    """Make the accounts of a server with passwords, and return its environment.

    Args:
        folder: Folder of the accounts, and of a generated password.
        admin: Name of the first administrator.
        password: Password of a new administrator. If None, one is generated.
        environment: Environment from :func:`server_environment`.

    Raises:
        ValueError: If MLflow cannot make the account.
    """
    accounts, settings, kept = (
        folder.absolute() / name for name in ("accounts.db", "accounts.ini", "admin-password")
    )
    database = str(accounts).replace("%", "%%")  # % is special in such files
    settings.write_text(_ACCOUNTS.format(database=database, admin=admin), encoding="utf-8")
    if password is None:
        if not (accounts.exists() or kept.exists()):
            kept.touch(0o600)
            kept.write_text(secrets.token_urlsafe(18), encoding="utf-8")
        password = kept.read_text(encoding="utf-8").strip() if kept.exists() else None
    environment = environment | {
        "MLFLOW_AUTH_CONFIG_PATH": str(settings),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_urlsafe(32),  # the same for all workers
        **({} if password is None else {"MLFLOW_AUTH_ADMIN_PASSWORD": password}),
    }
    # Workers would otherwise make the account at the same time.
    making = [sys.executable, "-c", "from mlflow.server import auth; auth.bootstrap_admin_user()"]
    done = subprocess.run(making, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(
            f"{accounts}: MLflow cannot make the account of {admin} in it: {done.stderr[-500:].strip()}"
        )
    return environment


def bracketed(host: str) -> str:
    """Write a name or address as in a URL."""
    return f"[{host}]" if ":" in host else host


@dataclass(frozen=True)
class Server:
    """MLflow's server.

    Attributes:
        database: Address of the store.
        folder: Folder of the accounts, in which the server runs.
        artifacts: Folder of the files of all runs.
        port: Port to listen on.
        workers: Number of processes.
        passwords: Whether clients need an account.
        host: Address to listen on.
        admin: Name of the administrator.
        names: Further names of this machine.
    """

    database: str
    folder: Path
    artifacts: Path
    port: int
    workers: int
    passwords: bool
    host: str = "127.0.0.1"
    admin: str = "admin"
    names: tuple[str, ...] = ()

    def serve(self, notes: Callable[[str], str], jobs: str = "") -> None:
        """Replace this process by the server, after checking everything that could fail.

        Args:
            notes: Function from the address of the server to the text that is printed first.
            jobs: Text on the accounts of jobs, which is printed if clients need an account.
        """
        os.umask(0o077)
        refuse_root()
        password = given_password(self.admin)
        words = server_words(self.artifacts, self.host, self.port, self.workers, passwords=self.passwords)
        environment = server_environment(self.database, self.artifacts, self.host, self.port, self.names)
        for kept in (self.folder, self.artifacts):  # before a database is made next to them
            check_folder(kept)
        prepare_database(self.database)
        for kept in (self.folder, self.artifacts):
            prepare_folder(kept)
        called = socket.getfqdn() if self.host in _EVERYWHERE else self.host
        text = notes(f"http://{bracketed(called)}:{self.port}")
        if self.passwords:
            environment = prepare_accounts(self.folder, self.admin, password, environment)
            text += (
                _LOGIN.format(admin=self.admin, file=self.folder / "admin-password", variable=PASSWORD) + jobs
            )
        sys.stdout.write(text)
        sys.stdout.flush()
        os.chdir(self.folder)  # where nobody else puts a configuration that the server would read
        os.execve(sys.executable, words, environment)
