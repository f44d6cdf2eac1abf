"""Stores of MLflow: safe addresses, one writer at a time, and an up-to-date schema."""

import os
import re
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from leakbound.storage import atomic
from leakbound.storage.locks import exclusive

ARTIFACTS = "mlartifacts"
"""Folder of the files of runs, next to the database."""
_ENVIRONMENT = {
    "MLFLOW_ALLOW_HTTP_REDIRECTS": "false",  # runs, and the password of the server, go nowhere else
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the default waits four minutes for a dead server
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",  # seconds to wait for a server that hangs
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def is_server(uri: str) -> bool:
    """Return True for the address of a tracking server."""
    return uri.startswith(("http://", "https://"))


def sqlite_file(uri: str) -> Path | None:
    """Return the absolute path of the file of a SQLite address, or None for any other address."""
    path = uri.partition("://")[2].partition("?")[0]
    return Path(path.removeprefix("/")).absolute() if uri.startswith("sqlite") else None


def writing(uri: str) -> AbstractContextManager[None]:
    """Lock a SQLite file for other processes of this library. Servers and other databases need no lock."""
    database = sqlite_file(uri)
    return nullcontext() if database is None else exclusive(database.with_name(f"{database.name}.lock"))


def connect(uri: str) -> Any:
    """Make an MLflow client that fails at once on a dead server, and after seconds on one that hangs.

    A missing SQLite file is made, with all its tables or not at all. This needs the lock of :func:`writing`.
    Values that the environment already has for MLflow's own variables are kept.
    """
    _quieten()
    from mlflow import MlflowClient

    _make(sqlite_file(uri))
    return MlflowClient(uri)


def upgrade_store(uri: str) -> None:
    """Make a database's folder and tables, or upgrade old tables. A server is left unchanged.

    Call this once before jobs write in parallel, because processes that open a new file together break its
    schema.
    """
    if is_server(uri):
        return
    _quieten()
    from mlflow.db import upgrade

    with writing(uri):
        _make(sqlite_file(uri))
        upgrade.main([uri], standalone_mode=False)


def _make(database: Path | None) -> None:
    """Make a missing SQLite file with all tables, because MLflow cannot resume interrupted migrations.

    Runs reveal something about records, so no other user may read the file and its artifacts.
    """
    if database is None:
        return
    from mlflow.db import upgrade

    artifacts = database.parent / ARTIFACTS
    artifacts.mkdir(0o700, parents=True, exist_ok=True)
    if not database.exists():
        with atomic(database, sealed=False) as temporary:
            temporary.touch(0o600)
            upgrade.main([f"sqlite:///{temporary}"], standalone_mode=False)
    with suppress(OSError):  # created by a colleague who shares it
        database.chmod(0o600)
        artifacts.chmod(0o700)


def failures() -> tuple[type[Exception], ...]:
    """List the errors of a store that is unavailable, slow, full or locked."""
    _quieten()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return (MlflowException, SQLAlchemyError, OSError)


def unreachable(uri: str) -> str | None:
    """Return the reason why the store does not answer, or None if it does."""
    try:
        with writing(uri):
            connect(uri).search_experiments(max_results=1)
    except failures() as error:
        return reason(error)
    return None


def reason(error: Exception) -> str:
    """Write the first line of an error, short and printable, without passwords of addresses."""
    lines = str(error).splitlines() or [type(error).__name__]
    text = re.sub(r"//[^@\s]+@", "//", lines[0])[:500]  # a server may have chosen it
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _quieten() -> None:
    """Set MLflow's environment before its first import, except what the user has set."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
