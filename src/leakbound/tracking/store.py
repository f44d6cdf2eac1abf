"""Where MLflow keeps runs: which addresses are allowed, one writer at a time, and a schema that is ready."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from leakbound.storage import atomic
from leakbound.storage.locks import exclusive

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SERVERS = ("http", "https")
_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_BUSY = "60"  # seconds for an answer of a server that lives: it may have many writers
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the default waits four minutes for a dead server
    _TIMEOUT: "15",  # seconds that a server which hangs may cost; one with many writers takes some of them
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}


def check_uri(uri: str) -> None:
    """Refuse an address that cannot keep runs safely.

    Raises:
        ValueError: If ``uri`` is neither a database nor a server, or a database in memory.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator or scheme.partition("+")[0] not in (*_DATABASES, *_SERVERS):
        raise ValueError(
            f"tracking.uri = {uri!r}: MLflow no longer keeps runs in plain folders; give a database "
            "(sqlite:///results/mlflow.db, postgresql://...) or a server (http://127.0.0.1:5000)"
        )
    if scheme.startswith("sqlite") and rest.lstrip("/") in ("", ":memory:"):
        raise ValueError(f"tracking.uri = {uri!r}: names no file; give one, e.g. sqlite:///results/mlflow.db")


def is_server(uri: str) -> bool:
    """Whether ``uri`` is a tracking server."""
    return uri.startswith(("http://", "https://"))


def sqlite_file(uri: str) -> Path | None:
    """The file behind a SQLite address, absolute, or None for any other address."""
    if not uri.startswith("sqlite"):
        return None
    path = uri.partition("://")[2].partition("?")[0]
    return Path(path.removeprefix("/")).absolute()


def artifact_location(uri: str, experiment: str) -> str | None:
    """Folder for the artifacts of a new experiment: beside a SQLite file, or None where the store decides."""
    database = sqlite_file(uri)
    return None if database is None else (database.parent / "mlartifacts" / experiment).as_uri()


def writing(uri: str) -> AbstractContextManager[None]:
    """Be the only process of this library that writes to a SQLite file; servers and other databases need no lock."""
    database = sqlite_file(uri)
    return nullcontext() if database is None else exclusive(database.with_name(f"{database.name}.lock"))


def connect(uri: str) -> Any:
    """MLflow client that gives up at once on a dead server and after seconds on one that hangs.

    A SQLite file that is not there is made, with all its tables or not at all; hold :func:`writing` for that. Values
    that the environment sets already for MLflow's own variables stay.

    Raises:
        ValueError: If ``uri`` cannot keep runs safely.
    """
    check_uri(uri)
    _quieten()
    from mlflow import MlflowClient

    _make(sqlite_file(uri))
    return MlflowClient(uri)


def upgrade_store(uri: str) -> None:
    """Make a database's folder and tables, or bring old tables up to date; leave a server alone.

    To be called once before jobs write in parallel: processes that open a new file together break its schema.

    Raises:
        ValueError: If ``uri`` cannot keep runs safely.
    """
    check_uri(uri)
    if is_server(uri):
        return
    _quieten()
    from mlflow.db import upgrade

    with writing(uri):
        _make(sqlite_file(uri))
        upgrade.main([uri], standalone_mode=False)


def _make(database: Path | None) -> None:
    """Make a SQLite file with all tables, if it is not there: half of MLflow's migrations cannot be gone on from."""
    if database is None or database.exists():
        return
    from mlflow.db import upgrade

    with atomic(database, sealed=False) as temporary:
        upgrade.main([f"sqlite:///{temporary}"], standalone_mode=False)


def failures() -> tuple[type[Exception], ...]:
    """What a store that is away, slow, full or locked raises."""
    _quieten()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    return (MlflowException, SQLAlchemyError, OSError)


@contextmanager
def patient() -> Iterator[None]:
    """Wait longer for answers, of a server that has just given one; a time that the environment sets stays."""
    usual = _ENVIRONMENT[_TIMEOUT]
    if os.environ.get(_TIMEOUT) != usual:
        yield
        return
    os.environ[_TIMEOUT] = _BUSY
    try:
        yield
    finally:
        os.environ[_TIMEOUT] = usual


def may_pass(error: Exception) -> bool:
    """Whether what a store raised, after it had answered, may be gone in a moment.

    Not if it refuses this user, and not if it was waited for in vain: that took long enough.
    """
    from mlflow.exceptions import MlflowException

    if isinstance(error, MlflowException):
        status = error.get_http_status_code()
    else:
        status = getattr(getattr(error, "response", None), "status_code", None)
    return status not in (401, 403) and not _timed_out(error)


def _timed_out(error: BaseException | None) -> bool:
    """Whether an error was raised because an answer took too long, however MLflow and requests have wrapped it."""
    import requests
    from urllib3.exceptions import NewConnectionError, TimeoutError

    while error is not None:
        refused = isinstance(error, NewConnectionError)  # which urllib3 counts among the others
        if isinstance(error, requests.Timeout | TimeoutError) and not refused:
            return True
        error = error.__cause__ or error.__context__
    return False


def unreachable(uri: str) -> str | None:
    """Why the store does not answer, or None if it does."""
    try:
        with writing(uri):
            connect(uri).search_experiments(max_results=1)
    except failures() as error:
        return reason(error)
    return None


def reason(error: Exception) -> str:
    """First line of an error, short, without a password that an address may hold."""
    lines = str(error).splitlines() or [type(error).__name__]
    return re.sub(r"//[^/@\s]+@", "//", lines[0])[:500]


def _quieten() -> None:
    """Set MLflow's environment before its first import, where the user has not."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
