"""Commands: MLflow's store and pages, and a server for a team."""

import os
import re
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.files import ConfigOption

_DATABASE = "LEAKBOUND_TRACKING_DATABASE"
_FOLDER = Path("results/tracking-server")
_NOTES = """\
MLflow serves at {address} (end with Ctrl-C). In the configuration:

tracking:
  uri: {address}
"""
_LOGIN = """
It asks for passwords; that of the administrator is in {file}, or what {variable} held at the first start.
Jobs need MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in their environment.
"""


def sync(
    configfile: ConfigOption = Path("config/config.yaml"),
    everything: Annotated[bool, typer.Option(help="Send what has arrived too, e.g. to fill a new store.")] = False,
) -> None:
    """Send to MLflow what could not be sent when its job finished."""
    from leakbound import tracking
    from leakbound.config import reading

    config = reading.load(configfile)
    folder = Path(config.root) / "tracking"
    outcomes = tracking.sync(folder, config.tracking.uri, everything=everything)
    for outcome in outcomes:
        sys.stdout.write(f"{outcome.marker}: {outcome.status} {outcome.reason or ''}\n")
    sys.stdout.write(f"{sum(outcome.status == 'stored' for outcome in outcomes)} of {len(outcomes)} stored\n")
    if any(outcome.status != "stored" for outcome in outcomes):
        raise typer.Exit(1)


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
) -> None:
    """Open MLflow's pages on the runs of a configuration, for this machine only."""
    from leakbound import tracking
    from leakbound.config import reading

    uri = reading.load(configfile).tracking.uri
    if uri.startswith("http"):
        sys.stdout.write(f"The runs are at {uri}\n")
        return
    tracking.upgrade_store(uri)
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    sys.stdout.write(f"Runs: http://127.0.0.1:{port}/#/experiments?workflowType=machine_learning (end with Ctrl-C)\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", uri]
    os.execv(sys.executable, [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"])


def tracking_server(
    folder: Annotated[Path, typer.Option(help="Holds artifacts and accounts.")] = _FOLDER,
    database: Annotated[str, typer.Option(envvar=_DATABASE, help="Holds the runs.")] = "postgresql:///mlflow",
    host: Annotated[str, typer.Option(help="Any but this machine's own asks for passwords.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 5000,
    admin: Annotated[str, typer.Option(help="Name of the administrator, where passwords are asked for.")] = "admin",
    name: Annotated[list[str] | None, typer.Option(help="Further name of this machine; may be repeated.")] = None,
    workers: Annotated[int, typer.Option(help="Processes that answer.", min=1, max=64)] = 4,
) -> None:
    """Serve MLflow to a team until Ctrl-C, and say what to write into the configuration."""
    from leakbound.tracking import server

    if re.search(r"://[^/@]*:[^/@]*@|[?&]password=", database) and database != os.environ.get(_DATABASE):
        raise typer.BadParameter(
            "--database: holds a password, which all users of this machine could read in the list of processes; give "
            f"the address in the variable {_DATABASE}, or the password in ~/.pgpass"
        )
    os.umask(0o077)
    words = server.server_words(folder, host, port, workers)
    environment = server.server_environment(database, host, port, name or [])
    if asks := not server.is_local(host):
        environment |= server.prepare_accounts(folder, admin)
    server.prepare_database(database)
    called = socket.getfqdn() if host in ("0.0.0.0", "::") else host
    said = _NOTES.format(address=f"http://{server.bracketed(called)}:{port}")
    said += _LOGIN.format(file=folder / "admin-password", variable=server.PASSWORD) if asks else ""
    sys.stdout.write(said)
    sys.stdout.flush()
    os.execve(sys.executable, words, environment)
