"""Commands: MLflow's store and pages."""

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.storage import DamagedFileError
from leakbound.storage.tables import read_record
from leakbound.words import printable
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Job
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.job_settings import ConfigOption
from leakbound_lab.steps.step_command import make_result

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
    """Send to MLflow the runs that it has not accepted yet, or all of them if its database is gone.

    Example: leakbound sync --configfile config/small.yaml

    Example: leakbound sync --everything
    """
    from leakbound_lab.tracking.store import sqlite_file, unreachable

    config = reading.load(configfile)
    jobs = job_list(config).of("log", "log_figures")
    logged = [job for job in jobs if Path(job.outputs["marker"]).is_file()]
    database = sqlite_file(config.tracking.uri)
    gone = database is not None and not database.exists()  # records of runs that it had accepted say so still
    unsent = [job for job in logged if everything or gone or not _is_stored(job)]
    if not unsent:
        sys.stdout.write(f"nothing to send: {len(logged)} of {len(logged)} finished runs are stored\n")
        return
    if why := unreachable(config.tracking.uri):
        raise ValueError(
            f"tracking.uri: the store does not answer ({why}). Nothing was sent, all stays pending"
        )
    stored = 0
    for job in unsent:
        try:
            make_result(job)
            stored += _is_stored(job)
        except DamagedFileError as error:  # the other runs are sent
            sys.stderr.write(f"leakbound: {error}\n")
    sys.stdout.write(f"{stored} of {len(unsent)} stored\n")
    if stored < len(unsent):
        raise typer.Exit(1)


def _is_stored(job: Job) -> bool:
    """Return True if the store has accepted a run. A damaged marker counts as a run that it has not."""
    try:
        return read_record(Path(job.outputs["marker"]), job.step).get("status") == "stored"
    except DamagedFileError:
        return False


def ui(
    configfile: ConfigOption = Path("config/config.yaml"),
    port: Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)] = 5000,
) -> None:
    """Open MLflow's pages for the runs of a configuration, on this machine only.

    Example: leakbound ui --port 5001
    """
    from leakbound_lab.tracking.sending import pages
    from leakbound_lab.tracking.store import ARTIFACTS, is_server, sqlite_file, upgrade_store

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
    artifacts = Path("mlruns").absolute() if file is None else file.parent / ARTIFACTS
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
