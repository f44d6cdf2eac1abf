"""Commands: MLflow's store and pages."""

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.config import reading
from leakbound.config.messages import printable

_SERVER = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "false",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONWARNINGS": "ignore",
}


def sync(
    configfile: ConfigOption = Path("config/config.yaml"),
    everything: Annotated[bool, typer.Option(help="Send all runs again, e.g. to a new store.")] = False,
) -> None:
    """Send to MLflow the runs that it has not accepted yet.

    Example: leakbound sync --configfile config/small.yaml

    Example: leakbound sync --everything
    """
    from leakbound.tracking.sending import send_pending

    config = reading.load(configfile)
    outcomes = send_pending(Path(config.root) / "tracking", config.tracking.uri, everything=everything)
    for marker, outcome in outcomes.items():
        sys.stdout.write(f"{marker}: {outcome.status} {outcome.reason}\n")
    stored = sum(outcome.status == "stored" for outcome in outcomes.values())
    sys.stdout.write(f"{stored} of {len(outcomes)} stored\n")
    if stored < len(outcomes):
        raise typer.Exit(1)


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
) -> None:
    """Open MLflow's pages for the runs of a configuration, on this machine only.

    Example: leakbound ui --port 5001
    """
    from leakbound.tracking.sending import pages
    from leakbound.tracking.store import is_server, sqlite_file, upgrade_store

    config = reading.load(configfile)
    uri = config.tracking.uri
    if is_server(uri):
        sys.stdout.write(f"The runs are at {uri}\n")
        return
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        raise ValueError(f"--port {port}: cannot be listened on ({error}); give another") from error
    os.umask(0o077)
    file = sqlite_file(uri)
    store = uri if file is None else f"sqlite:///{file}"
    artifacts = Path("mlruns").absolute() if file is None else file.parent / "mlartifacts"
    upgrade_store(store)
    address = f"http://127.0.0.1:{port}"
    sys.stdout.write(f"Runs: {address}/#/experiments?workflowType=machine_learning (end with Ctrl-C)\n")
    for name, page in pages(store, config.preset).items():
        sys.stdout.write(f"{printable(name)}: {address}{page}\n")
    sys.stdout.flush()
    hosts = {"MLFLOW_SERVER_ALLOWED_HOSTS": f"127.0.0.1:{port},localhost:{port}"}
    options = (
        f"--backend-store-uri={store}",
        f"--artifacts-destination={artifacts}",
        "--host=127.0.0.1",
        f"--port={port}",
        "--workers=1",
        "--app-name=leakbound-without-passwords",
        # With its default server MLflow mounts an assistant that executes commands.
        "--gunicorn-opts=--worker-class gthread --threads 8 --no-control-socket",
    )
    command = [sys.executable, "-m", "mlflow", "ui", *options]
    os.execve(sys.executable, command, os.environ | _SERVER | hosts)
