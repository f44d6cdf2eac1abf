"""The command line as a whole. It turns each mistake of the user into one message."""

import logging
import sys
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated

import typer

from leakbound import __version__
from leakbound.cli.command_table import EVERY_STEP, WORKFLOW, AllCommands, StepCommands
from leakbound.jobs.processes import coordination
from leakbound.jobs.processes.usage import write
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
_USAGE: ContextVar[Path | None] = ContextVar("usage", default=None)  # file that the command line names
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
    usage: Annotated[
        Path | None, typer.Option(help="Write time and memory of the command here if it succeeds (TSV).")
    ] = None,
) -> None:
    """Measure and bound how much a federated client's uploads reveal about its data."""
    if usage is not None:
        from leakbound.cli.inputs import check_outputs

        check_outputs(usage)
    _USAGE.set(usage)


def run(began: float, commands: typer.Typer = app) -> None:
    """Run a program of commands. A mistake of the user ends with a message and exit code 2, without a traceback.

    Args:
        began: Monotonic clock when this process began, in seconds.
        commands: The program, by default the command line.

    Raises:
        SystemExit: In all cases except a defect of the program.
    """
    logging.basicConfig(
        format="%(asctime)s %(message)s", datefmt="%H:%M:%S", level=logging.INFO, stream=sys.stderr
    )
    _USAGE.set(None)
    try:
        coordination.follow_coordinator()
        try:
            commands(standalone_mode=True)
        except SystemExit as ended:
            if not ended.code and (path := _USAGE.get()) is not None:
                write(path, began)
            raise
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
