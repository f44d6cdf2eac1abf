"""Commands: MLflow's store and pages."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.files import ConfigOption


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
