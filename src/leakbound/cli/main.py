"""Puts the commands together and turns mistakes of the user into one message each."""

from __future__ import annotations

import logging
import sys

import typer

from leakbound.cli import attacks, channels, configuration, data, figures, reference, tracking, training

app = typer.Typer(
    help="Measure and bound how much a federated client's uploads tell about its data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    data.prepare,
    data.covariance,
    channels.spectrum,
    channels.calibrate,
    training.tune,
    training.train,
    attacks.attack,
    figures.illustrate,
    figures.tabulate,
    figures.plot,
    figures.claims,
    tracking.log,
    tracking.log_figures,
    tracking.sync,
    tracking.ui,
    configuration.config,
    reference.reference,
):
    app.command()(command)


def main() -> None:
    """Run the command line; a mistake in what was given ends with its message and exit code 2, without a traceback."""
    logging.basicConfig(format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("leakbound").setLevel(logging.INFO)
    try:
        app(standalone_mode=True)
    except (ValueError, FileNotFoundError, ImportError) as error:
        if isinstance(error, ValueError) and not type(error).__module__.startswith("leakbound"):
            raise
        sys.stderr.write(f"leakbound: {error}\n")
        raise SystemExit(2) from error
