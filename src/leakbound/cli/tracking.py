"""Commands: MLflow's store and pages."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.files import ConfigOption

FolderOption = Annotated[Path, typer.Option(help="Holds the databases, artifacts, logs and secrets of the server.")]
_DATABASE = "LEAKBOUND_TRACKING_DATABASE"


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
    folder: FolderOption = Path("results/tracking-server"),
    host: Annotated[
        str, typer.Option(help="Address to listen on; any but this machine's own asks for passwords.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=1, max=65535)] = 5000,
    database: Annotated[
        str | None,
        typer.Option(envvar=_DATABASE, help="Existing database, instead of one in the folder."),
    ] = None,
    admin: Annotated[str, typer.Option(help="Name of the administrator, where passwords are asked for.")] = "admin",
    name: Annotated[
        list[str] | None, typer.Option(help="Further name that clients call this machine by; may be repeated.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that answer.", min=1, max=64)] = 4,
) -> None:
    """Start an MLflow server on PostgreSQL in the background, and say what to write into the configuration."""
    from leakbound.tracking import server

    secret = re.search(r"://[^/@]*:[^/@]*@|[?&]password=", database or "")
    if secret and database != os.environ.get(_DATABASE):
        raise typer.BadParameter(
            "--database: holds a password, which all users of this machine could read in the list of processes; give "
            f"the address in the variable {_DATABASE}, or the password in ~/.pgpass"
        )
    asked = server.ServerSettings(folder, host, port, database, admin, tuple(name or ()), workers)
    found = server.start_server(asked)
    lines = [f"MLflow {'serves' if found.started else 'is serving already'} at {found.address}, log: {found.log}"]
    if found.asks:
        source = found.password or f"what {server.PASSWORD} held at the first start"
        lines.append(f"It asks for passwords; that of the administrator is in {source}")
        lines.append("Jobs need MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD in their environment")
    lines.append(f"In the configuration:\n\ntracking:\n  uri: {found.address}\n")
    lines.append(f"End it with: leakbound tracking-server-stop --folder {folder}")
    sys.stdout.write("\n".join(lines) + "\n")


def tracking_server_stop(folder: FolderOption = Path("results/tracking-server")) -> None:
    """End the MLflow server of a folder and its PostgreSQL; all that they hold is kept for the next start."""
    from leakbound.tracking import server

    ended = server.stop_server(folder)
    sys.stdout.write(f"{folder}: {'ended' if ended else 'no server runs from here'}\n")
