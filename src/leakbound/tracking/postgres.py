"""A PostgreSQL of one's own in a folder: no network, one password in a file, and what it holds kept when it stops."""

from __future__ import annotations

import hashlib
import os
import pwd
import secrets
import shlex
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

_INSTALLED = "/usr/lib/postgresql"  # Debian keeps the programs in a folder for each version, off the PATH
_USER = "postgres"  # whom PostgreSQL runs as where root starts it, which it refuses to be
_ROLE = "leakbound"
_ENDING = 60.0  # seconds until the system has let go of a process that was killed
_LONGEST_SOCKET = 107  # bytes of a socket's path on Linux; others allow 103
_CONNECTIONS = 200  # of a few workers with some threads each, for several stores


class ServerError(ValueError):
    """A server that cannot be started or stopped, and what to do about it."""


class Cluster:
    """The databases in a folder, and the PostgreSQL that serves them.

    It listens on a socket in a folder of its own, never on a network, and asks for a password that only the owner of
    the folder can read.

    Args:
        folder: Where the cluster lies, beside its log and password. Root must have made it so that others can enter.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._data = self._folder / "database"
        self._log = self._folder / "database.log"
        self._passwords = self._folder / "database-password"  # as libpq reads it

    def running(self) -> bool:
        """Whether the databases are being served."""
        return self._data.is_dir() and self._call("pg_ctl", "status", "-D", str(self._data)).returncode == 0

    def start(self, *names: str) -> None:
        """Serve the databases, those named among them; what is not there is made.

        Raises:
            ServerError: If PostgreSQL is not installed, or does not start.
        """
        self._make()
        end = time.monotonic() + _ENDING
        while self.running() and not self._listens() and time.monotonic() < end:
            time.sleep(0.1)  # one that was killed a moment ago: no other starts until the system has let go of it
        if not self.running():
            folder = self._socket_folder()
            if not folder.exists():
                folder.mkdir(0o700)
                self._give(folder)
            self._check_socket_folder(folder)
            settings = {
                "listen_addresses": "",
                "unix_socket_directories": f'"{folder}"',
                "port": "5432",
                "max_connections": str(_CONNECTIONS),
            }
            options = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in settings.items())
            words = ["-D", str(self._data), "-l", str(self._log), "-w", "-t", "120", "-o", options]
            self._log.touch(0o600)
            self._give(self._log)
            if self._call("pg_ctl", "start", *words).returncode:
                raise ServerError(f"{self._data}: PostgreSQL does not start; {self._log} ends with\n{tail(self._log)}")
        for name in names:
            self._create(name)

    def stop(self) -> bool:
        """End PostgreSQL, if it runs, when all that it has accepted is on disk; returns whether it ran.

        Raises:
            ServerError: If it does not end.
        """
        if not self.running():
            return False
        ended = self._call("pg_ctl", "stop", "-D", str(self._data), "-m", "fast", "-w", "-t", "120")
        if ended.returncode:
            raise ServerError(f"{self._data}: PostgreSQL does not end: {ended.stderr.strip()}")
        return True

    def _listens(self) -> bool:
        """Whether anybody takes connections at the socket."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._socket_folder() / ".s.PGSQL.5432"))
            except OSError:
                return False
        return True

    def uri(self, name: str) -> str:
        """Address of a database, without its password: that stays in the file which is named."""
        where = {"host": self._socket_folder(), "port": 5432, "passfile": self._passwords}
        return f"postgresql://{_ROLE}@/{name}?" + "&".join(f"{key}={quote(str(one))}" for key, one in where.items())

    def _make(self) -> None:
        """Make the cluster, whole or not at all, if it is not there."""
        if self._data.is_dir():
            return
        self._check_folder()
        new = self._folder / ".database.new"
        shutil.rmtree(new, ignore_errors=True)  # of a start that was killed
        new.mkdir(0o700)
        self._give(new)
        password = secrets.token_urlsafe(32)
        self._passwords.unlink(missing_ok=True)
        write_secret(self._passwords, f"*:*:*:{_ROLE}:{password}\n")
        with tempfile.NamedTemporaryFile("w", dir=self._folder, encoding="utf-8") as given:
            given.write(password)
            given.flush()
            self._give(Path(given.name))
            words = ["-D", str(new), "-U", _ROLE, "--auth=scram-sha-256", f"--pwfile={given.name}"]
            made = self._call("initdb", *words, "--encoding=UTF8", "--no-locale", "--data-checksums")
        if made.returncode:
            shutil.rmtree(new, ignore_errors=True)
            raise ServerError(f"{self._data}: PostgreSQL cannot make its files: {made.stderr.strip()}")
        new.rename(self._data)

    def _create(self, name: str) -> None:
        """Make an empty database, if it is not there.

        Raises:
            ServerError: If PostgreSQL refuses.
        """
        from sqlalchemy import create_engine, text
        from sqlalchemy.exc import SQLAlchemyError

        engine = create_engine(self.uri("postgres"), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                found = connection.execute(text("SELECT 1 FROM pg_database WHERE datname = :name"), {"name": name})
                if found.first() is None:
                    connection.execute(text(f'CREATE DATABASE "{name}"'))
        except SQLAlchemyError as error:
            raise ServerError(f"{self._data}: PostgreSQL refuses: {str(error).splitlines()[0]}") from error
        finally:
            engine.dispose()

    def _socket_folder(self) -> Path:
        """Folder of the socket: in the cluster's own, or where paths are short."""
        near = self._folder / "socket"
        if len(os.fsencode(near / ".s.PGSQL.5432")) <= _LONGEST_SOCKET - 4:
            return near
        name = hashlib.sha256(os.fsencode(self._folder)).hexdigest()[:16]
        return Path("/tmp") / f"leakbound-{name}"

    def _check_socket_folder(self, folder: Path) -> None:
        """Refuse a folder that somebody else has put there, who could play the database.

        Raises:
            ServerError: If it is not a folder of the user whom PostgreSQL runs as.
        """
        found = folder.lstat()
        owner = pwd.getpwnam(_USER).pw_uid if os.geteuid() == 0 else os.geteuid()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner:
            raise ServerError(f"{folder}: is not a folder of the user that PostgreSQL runs as; remove it")

    def _check_folder(self) -> None:
        """Find out before anything is made what would keep PostgreSQL from the folder.

        Raises:
            ServerError: If PostgreSQL cannot be run here.
        """
        _program("initdb")
        _program("pg_ctl")
        if os.geteuid() != 0:
            return
        try:
            pwd.getpwnam(_USER)
        except KeyError as error:
            raise ServerError(
                f"PostgreSQL does not run as root, and there is no user {_USER!r} to run it as; start as another user"
            ) from error
        if subprocess.run(["test", "-x", self._folder], **_as_user(), check=False).returncode:
            raise ServerError(
                f"{self._folder}: user {_USER!r}, whom PostgreSQL runs as where root starts it, cannot enter it; give "
                "a --folder below folders that everybody can enter, such as /var/lib/leakbound"
            )

    def _give(self, path: Path) -> None:
        """Let the user have a file whom PostgreSQL runs as."""
        if os.geteuid() == 0:
            shutil.chown(path, _USER, _USER)

    def _call(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Call one of PostgreSQL's programs as the user whom it runs as."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        return subprocess.run(
            [_program(program), *words],
            env=environment | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            **_as_user(),
        )


def installed() -> bool:
    """Whether PostgreSQL's programs are there."""
    try:
        return bool(_program("initdb") and _program("pg_ctl"))
    except ServerError:
        return False


def write_secret(path: Path, text: str) -> None:
    """Write a new file that nobody else can read, not even for a moment."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)


def tail(path: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _program(name: str) -> str:
    """Path of one of PostgreSQL's programs, the newest if there are several versions.

    Raises:
        ServerError: If it is not there.
    """
    versions = sorted(Path(_INSTALLED).glob("*/bin"), key=lambda path: [int(part) for part in _numbers(path)])
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(map(str, reversed(versions))))
    if found is None:
        raise ServerError(
            f"PostgreSQL's program {name} is neither on the PATH nor below {_INSTALLED}; install PostgreSQL (Debian "
            "and Ubuntu: apt install postgresql; conda: conda install postgresql), or name a database by --database"
        )
    return found


def _numbers(path: Path) -> list[str]:
    """Numbers of the version in a path such as ``/usr/lib/postgresql/15/bin``."""
    return [part for part in path.parent.name.split(".") if part.isdigit()]


def _as_user() -> dict[str, Any]:
    """How to call a program of PostgreSQL: in a folder that everybody can enter, and not as root."""
    user = {"user": _USER, "group": _USER, "extra_groups": []} if os.geteuid() == 0 else {}
    return {"cwd": "/", **user}
