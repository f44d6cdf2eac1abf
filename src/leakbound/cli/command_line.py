"""The command line as a whole: the commands by name, and one message for each mistake of the user.

Each command is imported when it is called, so a job loads only the file of its step.
"""

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from leakbound import __version__
from leakbound.jobs.paths import OUTPUTS
from leakbound.jobs.processes import coordination
from leakbound.jobs.processes.usage import write
from leakbound.registry import missing

PEOPLE = "For your own records and networks"
RUNS = "Runs"
WORKFLOW = "Workflow"


@dataclass(frozen=True)
class Place:
    """Place of a command.

    Attributes:
        module: Module of the command line.
        name: Function in the module. It is ``STEP`` for a step of the workflow.
        panel: Heading of the command in the help.
    """

    module: str
    name: str
    panel: str | None = None

    def function(self) -> Callable[..., Any]:
        """Import and return the function behind the command."""
        function: Any = getattr(importlib.import_module(f"leakbound.cli.{self.module}"), self.name)
        if self.name != "STEP":
            return function
        from leakbound.cli.step_command import as_command

        return as_command(function)


COMMANDS: Mapping[str, Place] = {
    "protect": Place("people.protect", "protect", PEOPLE),
    "calibrate": Place("people.calibrate", "calibrate_records", PEOPLE),
    "compare": Place("people.compare", "compare", PEOPLE),
    "risk": Place("people.risk_translation", "risk", PEOPLE),
    "account": Place("people.account", "account", PEOPLE),
    "audit": Place("people.audit", "audit", PEOPLE),
    "demo": Place("people.demo", "demo", PEOPLE),
    "publish": Place("people.publish", "publish", PEOPLE),
    "plan": Place("runs.plan", "plan", RUNS),
    "config": Place("runs.config", "config", RUNS),
    "verify": Place("runs.verify", "verify", RUNS),
    "report": Place("runs.report", "write_report", RUNS),
    "sync": Place("runs.tracking", "sync", RUNS),
    "ui": Place("runs.tracking", "ui", RUNS),
}
"""Commands for people."""
STEPS: Mapping[str, Place] = {
    **{name.replace("_", "-"): Place(f"steps.{name}", "STEP") for name in OUTPUTS},
    "several": Place("steps.several", "several"),
}
"""Commands that the rules of the workflow call, in the order of the chain."""


class _Group(TyperGroup):
    """Group of commands that are imported when they are called."""

    places: ClassVar[Mapping[str, Place]]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        entries: dict[str, Any] = {**self.places, **self.commands}
        self.commands = entries  # a place becomes a command at its first use

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, None if there is none."""
        entry: Any = self.commands.get(cmd_name)
        if isinstance(entry, Place):
            info = CommandInfo(cmd_name, callback=entry.function(), rich_help_panel=entry.panel)
            entry = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")
            self.commands[cmd_name] = entry
        return entry


class AllCommands(_Group):
    """Group of all commands for people."""

    places = COMMANDS


class StepCommands(_Group):
    """Group of the steps of the workflow."""

    places = STEPS


app = typer.Typer(
    cls=AllCommands,
    help="Measure and bound how much a federated client's uploads reveal about its data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(
    typer.Typer(cls=StepCommands, no_args_is_help=True),
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
