"""The command line as a whole. It turns each mistake of the user into one message."""

import gc
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound import __version__
from leakbound.cli.command_table import EVERY_STEP, WORKFLOW, AllCommands, StepCommands
from leakbound.jobs.processes import coordination
from leakbound.registry import missing, nearest_path

app = typer.Typer(
    cls=AllCommands,
    help="Measure and bound how much a federated client's uploads reveal about its data.",
    epilog="Example: leakbound demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(
    typer.Typer(cls=StepCommands, epilog=EVERY_STEP, no_args_is_help=True),
    name="step",
    help="Steps of the workflow, listed by `leakbound step --help`.",
    rich_help_panel=WORKFLOW,
)
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, as shells count it."""
_DEFECT = (
    "leakbound: this is a defect of the program, or of a plugin if the lines above end in one. No input "
    "should cause it. Please report all of these lines with the command."
)


def _show_version(wanted: bool) -> bool:
    """Show the version and stop, if the user wants it. Typer passes on the returned value."""
    if wanted:
        sys.stdout.write(f"leakbound {__version__}\n")
        raise typer.Exit
    return wanted


@app.callback()
def _leakbound(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and stop."),
    ] = False,
) -> None:
    """Measure and bound how much a federated client's uploads reveal about its data."""


def main(commands: typer.Typer = app) -> None:
    """Run a program of commands. A mistake of the user, and Ctrl-C, end it with a message and without a traceback.

    Args:
        commands: The program, by default the command line.

    Raises:
        SystemExit: In all cases except a defect of the program.
    """
    logging.basicConfig(
        format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO, stream=sys.stderr
    )
    # A job makes half a million objects that live until its end. At each 700 of them, as by default, the
    # search for cycles takes an eighth of its start.
    gc.set_threshold(10_000)
    try:
        coordination.follow_coordinator()
        commands(standalone_mode=True)
    except (KeyboardInterrupt, SystemExit) as ended:
        if getattr(ended, "code", INTERRUPTED) != INTERRUPTED:
            raise
        sys.stderr.write("\nleakbound: interrupted; the same command goes on, or begins again\n")
        raise SystemExit(INTERRUPTED) from None
    except Exception as error:
        if not _explains_itself(error):
            error.add_note(_DEFECT)
            raise
        from leakbound.config.messages import printable  # slow import

        said = missing(error) if isinstance(error, ModuleNotFoundError) else str(error)
        if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
            said += nearest_path(Path(error.filename))
        lines = [printable(line) for line in said.split("\n")]  # some words may come from a file
        sys.stderr.write("\n".join(["leakbound: " + lines[0], *lines[1:], ""]))
        raise SystemExit(2) from error


def _explains_itself(error: Exception) -> bool:
    """Return True for errors that are messages to the user: of this package, or about files and modules."""
    if isinstance(error, OSError | ImportError):
        return True
    if not isinstance(error, ValueError):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith("leakbound.")
