"""Commands: MLflow's store and pages, and a server for a team."""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.settings import ConfigOption

_DATABASE = "LEAKBOUND_TRACKING_DATABASE"
_FOLDER = Path("results/tracking-server")
_NOTES = """\
MLflow serves at {address} (end with Ctrl-C). In the configuration:

tracking:
  uri: {address}
"""
_LOGIN = """
It asks for a name and a password: {admin}, and what is in {file}, or what {variable} held at the first start.
"""
_JOBS = "Jobs need MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in their environment.\n"
_AccountsOption = Annotated[bool, typer.Option(help="Ask for them; only a server for this machine may do without.")]


def sync(
    configfile: ConfigOption = Path("config/config.yaml"),
    everything: Annotated[bool, typer.Option(help="Send what has arrived too, e.g. to fill a new store.")] = False,
) -> None:
    """Send to MLflow what could not be sent when its job finished."""
    from leakbound import tracking
    from leakbound.config import reading

    config = reading.load(configfile)
    folder = Path(config.root) / "tracking"
    outcomes = tracking.send_pending(folder, config.tracking.uri, everything=everything)
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.marker}: {outcome.status} {outcome.reason or ''}\n")
    sys.stdout.write(f"{sum(outcome.status == 'stored' for outcome in outcomes)} of {len(outcomes)} stored\n")
    if any(outcome.status != "stored" for outcome in outcomes):
        raise typer.Exit(1)


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
    passwords: _AccountsOption = True,
    folder: Annotated[Path, typer.Option(help="Holds the account.")] = Path("results/ui"),
) -> None:
    """Open MLflow's pages on the runs of a configuration, for this machine only."""
    from leakbound.config import reading
    from leakbound.config.messages import printable
    from leakbound.tracking.store import is_server, sqlite_file

    config = reading.load(configfile)
    uri = config.tracking.uri
    if is_server(uri):
        sys.stdout.write(f"The runs are at {uri}\n")
        return
    file = sqlite_file(uri)
    store, server = uri if file is None else f"sqlite:///{file}", f"http://127.0.0.1:{port}"

    def said() -> str:
        from leakbound import tracking

        runs = tracking.pages(store, config.preset)
        lines = (f"{printable(name)}: {server}{page}\n" for name, page in runs.items())
        return f"Runs: {server}/#/experiments?workflowType=machine_learning (end with Ctrl-C)\n{''.join(lines)}"

    _serve(
        store,
        folder,
        Path("mlruns") if file is None else file.parent / "mlartifacts",
        port=port,
        workers=1,
        passwords=passwords,
        said=said,
    )


def tracking_server(
    folder: Annotated[Path, typer.Option(help="Holds artifacts and accounts.")] = _FOLDER,
    database: Annotated[str, typer.Option(envvar=_DATABASE, help="Holds the runs.")] = "postgresql:///mlflow",
    host: Annotated[str, typer.Option(help="Address to listen on, by default for this machine alone.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 5000,
    passwords: _AccountsOption = True,
    admin: Annotated[str, typer.Option(help="Name of the administrator.")] = "admin",
    name: Annotated[list[str] | None, typer.Option(help="Further name of this machine; may be repeated.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that answer.", min=1, max=64)] = 4,
) -> None:
    """Serve MLflow to a team until Ctrl-C, and say what to write into the configuration."""
    from leakbound.config.settings import without_password
    from leakbound.tracking.server import bracketed

    if without_password(database) != database and any(database in word for word in sys.argv):
        raise typer.BadParameter(
            "--database: holds a password, which all users of this machine could read in the list of processes; give "
            f"the address in the variable {_DATABASE}, or the password in ~/.pgpass"
        )
    called = socket.getfqdn() if host in ("0.0.0.0", "::") else host
    notes = _NOTES.format(address=f"http://{bracketed(called)}:{port}")
    _serve(
        database,
        folder,
        folder / "artifacts",
        host=host,
        port=port,
        workers=workers,
        passwords=passwords,
        admin=admin,
        names=name or [],
        said=lambda: notes,
        jobs=_JOBS,
    )


def _serve(
    database: str,
    folder: Path,
    artifacts: Path,
    *,
    port: int,
    workers: int,
    passwords: bool,
    said: Callable[[], str],
    host: str = "127.0.0.1",
    admin: str = "admin",
    names: Sequence[str] = (),
    jobs: str = "",
) -> None:
    """Become MLflow's server, after everything that could be wrong has been looked at."""
    from leakbound.tracking import server

    os.umask(0o077)
    server.refuse_root()
    password = server.given_password(admin)
    words = server.server_words(artifacts, host, port, workers, passwords=passwords)
    environment = server.server_environment(database, artifacts, host, port, names)
    for kept in (folder, artifacts):  # before a database is made beside them
        server.check_folder(kept)
    server.prepare_database(database)
    for kept in (folder, artifacts):
        server.prepare_folder(kept)
    text = said()
    if passwords:
        environment = server.prepare_accounts(folder, admin, password, environment)
        text += _LOGIN.format(admin=admin, file=folder / "admin-password", variable=server.PASSWORD) + jobs
    sys.stdout.write(text)
    sys.stdout.flush()
    os.chdir(folder)  # where nobody else puts a configuration that the server would read
    os.execve(sys.executable, words, environment)
