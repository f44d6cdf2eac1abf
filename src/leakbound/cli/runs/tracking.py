"""Commands: MLflow's store and pages, and a server for a team."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.config import reading
from leakbound.config.messages import printable
from leakbound.config.settings import without_password

_DATABASE = "LEAKBOUND_TRACKING_DATABASE"
_FOLDER = Path("results/tracking-server")
_NOTES = """\
MLflow serves at {address} (end with Ctrl-C). In the configuration:

tracking:
  uri: {address}
"""
_JOBS = "Jobs need MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in their environment.\n"
_AccountsOption = Annotated[
    bool,
    typer.Option(help="Require a login. Only a server that this machine alone can reach may do without it."),
]


def sync(
    configfile: ConfigOption = Path("config/config.yaml"),
    everything: Annotated[bool, typer.Option(help="Send all runs again, e.g. to a new store.")] = False,
) -> None:
    """Send to MLflow the runs that it has not accepted yet."""
    from leakbound import tracking

    config = reading.load(configfile)
    outcomes = tracking.send_pending(
        Path(config.root) / "tracking", config.tracking.uri, everything=everything
    )
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.marker}: {outcome.status} {outcome.reason or ''}\n")
    sys.stdout.write(f"{sum(outcome.status == 'stored' for outcome in outcomes)} of {len(outcomes)} stored\n")
    if any(outcome.status != "stored" for outcome in outcomes):
        raise typer.Exit(1)


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
    passwords: _AccountsOption = True,
    folder: Annotated[Path, typer.Option(help="Folder for the password of the account.")] = Path(
        "results/ui"
    ),
) -> None:
    """Open MLflow's pages for the runs of a configuration, on this machine only."""
    from leakbound.tracking.server import Server
    from leakbound.tracking.store import is_server, sqlite_file

    config = reading.load(configfile)
    uri = config.tracking.uri
    if is_server(uri):
        sys.stdout.write(f"The runs are at {uri}\n")
        return
    file = sqlite_file(uri)
    store = uri if file is None else f"sqlite:///{file}"
    artifacts = Path("mlruns") if file is None else file.parent / "mlartifacts"

    def notes(address: str) -> str:
        from leakbound import tracking

        runs = tracking.pages(store, config.preset)
        lines = (f"{printable(name)}: {address}{page}\n" for name, page in runs.items())
        return (
            f"Runs: {address}/#/experiments?workflowType=machine_learning (end with Ctrl-C)\n{''.join(lines)}"
        )

    Server(store, folder, artifacts, port=port, workers=1, passwords=passwords).serve(notes)


def tracking_server(
    folder: Annotated[Path, typer.Option(help="Folder for artifacts and accounts.")] = _FOLDER,
    database: Annotated[
        str, typer.Option(envvar=_DATABASE, help="URL of the database of the runs.")
    ] = "postgresql:///mlflow",
    host: Annotated[
        str, typer.Option(help="Address to listen on. By default only this machine can connect.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 5000,
    passwords: _AccountsOption = True,
    admin: Annotated[str, typer.Option(help="Name of the administrator.")] = "admin",
    name: Annotated[
        list[str] | None,
        typer.Option(help="Another host name under which clients reach this machine. May be repeated."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of server processes.", min=1, max=64)] = 4,
) -> None:
    """Serve MLflow to a team until Ctrl-C, and print the lines for the configuration."""
    from leakbound.tracking.server import Server

    if without_password(database) != database and any(database in word for word in sys.argv):
        raise typer.BadParameter(
            "--database: holds a password, which all users of this machine could read in the list of processes; "
            f"give the address in the variable {_DATABASE}, or the password in ~/.pgpass"
        )
    Server(
        database,
        folder,
        folder / "artifacts",
        host=host,
        port=port,
        workers=workers,
        passwords=passwords,
        admin=admin,
        names=tuple(name or ()),
    ).serve(lambda address: _NOTES.format(address=address), _JOBS)
