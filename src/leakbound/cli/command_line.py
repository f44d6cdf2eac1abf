"""The command line as a whole. It turns each mistake of the user into one message.

Each command is imported when it is called, so a job loads only the file of its step.
"""

import gc
import importlib
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from leakbound import __version__
from leakbound.jobs import coordination
from leakbound.jobs.paths import OUTPUTS, RULES
from leakbound.registry import missing, nearest_path

PEOPLE = "For your own records and networks"
RUNS = "Runs"
WORKFLOW = "Workflow"
EVERY_STEP = "Example: snakemake -n -p -j 1 --forceall shows each call of a step."
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, as shells count it."""
_DEFECT = (
    "leakbound: this is a defect of the program, or of a plugin if the lines above end in one. No input "
    "should cause it. Please report all of these lines with the command."
)


class Place(NamedTuple):
    """Place of a command.

    Attributes:
        module: Module of the command line.
        name: Function in the module. It is ``STEP`` for a step of the workflow.
        panel: Heading of the command in the help.
        line: First paragraph of its help, which the help of all commands shows.
    """

    module: str
    name: str
    panel: str | None = None
    line: str = ""

    def function(self) -> Callable[..., Any]:
        """Import and return the function behind the command."""
        function: Any = getattr(importlib.import_module(f"leakbound.cli.{self.module}"), self.name)
        if self.name != "STEP":
            return function
        from leakbound.cli.step_command import as_command

        return as_command(function)


COMMANDS: Mapping[str, Place] = {
    "protect": Place(
        "people.protect",
        "protect",
        PEOPLE,
        "Add calibrated noise to every record and report how much the copies leak. Choose exactly one target.",
    ),
    "calibrate": Place(
        "people.calibrate",
        "calibrate_records",
        PEOPLE,
        "Show how much noise a target needs and what the noisy records then leak. Choose exactly one target.",
    ),
    "compare": Place(
        "people.compare",
        "compare",
        PEOPLE,
        "Compare defenses on your own records. Write one page on which is worth its cost and what is undecided.",
    ),
    "risk": Place(
        "people.risk_translation",
        "risk",
        PEOPLE,
        "Translate nats into risks of identification, membership inference and reconstruction. Suggest targets.",
    ),
    "account": Place(
        "people.account",
        "account",
        PEOPLE,
        "Show bounds on what a training reveals about one record: as published, as a sum of uses, and jointly.",
    ),
    "audit": Place(
        "people.audit",
        "audit",
        PEOPLE,
        "Compare the leakage that attacks demonstrate with its bound. Exit with code 1 if the bound is exceeded.",
    ),
    "demo": Place(
        "people.demo",
        "demo",
        PEOPLE,
        "Write one offline page of images that an attacker recovers from uploads, without and with a channel.",
    ),
    "publish": Place(
        "people.publish",
        "publish",
        PEOPLE,
        "Write one replica of a run with its channel, privacy event and leakage. Refuse data without a bound.",
    ),
    "plan": Place(
        "runs.plan",
        "plan",
        RUNS,
        "Estimate the jobs, hours and disk space of a configuration before anything runs, and the total time.",
    ),
    "config": Place(
        "runs.config",
        "config",
        RUNS,
        "Check a configuration, or write the default one and the JSON schema for editors.",
    ),
    "verify": Place(
        "runs.verify",
        "verify",
        RUNS,
        "Compare every file of the results with its seal, and its settings with those of the configuration.",
    ),
    "report": Place(
        "steps.report",
        "write_report",
        RUNS,
        "Write one offline page with the figures, verdicts, runs and provenance of a finished configuration.",
    ),
    "export": Place(
        "runs.export", "export", RUNS, "Write figures and tables of a finished configuration for a paper."
    ),
    "diff": Place(
        "runs.diff",
        "diff",
        RUNS,
        "Print what differs between two results: settings, means over replicas at their chosen rates, verdicts.",
    ),
    "sync": Place(
        "runs.tracking",
        "sync",
        RUNS,
        "Send to MLflow the runs that it has not accepted yet, or all of them if its database is gone.",
    ),
    "ui": Place(
        "runs.tracking",
        "ui",
        RUNS,
        "Open MLflow's pages for the runs of a configuration, on this machine only.",
    ),
}
"""Commands for people."""
LEDGERS: Mapping[str, Place] = {
    "new": Place(
        "people.ledger",
        "new",
        None,
        "Make a ledger, in which all runs that name it count what they reveal of each record.",
    ),
    "show": Place(
        "people.ledger",
        "show",
        None,
        "Show since when a ledger counts, how many runs and records, and how often which channels were used.",
    ),
}
"""Commands about ledgers."""
STEPS: Mapping[str, Place] = {
    RULES.get(name, name).replace("_", "-"): Place(f"steps.{name}", "STEP") for name in OUTPUTS
}
"""Commands that the rules of the workflow call, in the order of the chain."""


class _Command(TyperCommand):
    """Command that says which value it refuses."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words behind the command's name."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as refused:
            for wrong in getattr(refused.__cause__, "errors", list)()[:1]:  # of pydantic
                refused.message = f"{wrong['input']!r}: {wrong['msg'].removeprefix('Value error, ')}"
            raise


class AllCommands(TyperGroup):
    """Group of all commands for people, which are imported when they are called."""

    places = COMMANDS
    _in_help = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        entries: dict[str, Any] = {**self.places, **self.commands}
        self.commands = entries  # a place becomes a command at its first use

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help, by the lines of the commands that have one, without importing these."""
        self._in_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._in_help = False

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of a name, None if there is none."""
        entry: Any = self.commands.get(cmd_name)
        if self._in_help and isinstance(entry, Place) and entry.line:
            return TyperCommand(cmd_name, help=entry.line, rich_help_panel=entry.panel)
        if isinstance(entry, Place):
            function = entry.function()
            # Lines are broken at the width of the terminal, not of the source.
            lines = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
            text, label, examples = lines.partition("\n\nExample: ")
            info = CommandInfo(
                cmd_name, cls=_Command, callback=function, help=text, rich_help_panel=entry.panel
            )
            info.epilog = f"Example: {examples}" if label else EVERY_STEP
            entry = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")
            self.commands[cmd_name] = entry
        return entry


class StepCommands(AllCommands):
    """Group of the steps of the workflow."""

    places = STEPS


class LedgerCommands(AllCommands):
    """Group of the commands about ledgers."""

    places = LEDGERS


app = typer.Typer(
    cls=AllCommands,
    help="Measure and bound how much a federated client's uploads reveal about its data.",
    epilog="Example: leakbound demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(
    typer.Typer(cls=LedgerCommands, epilog="Example: leakbound ledger new uses.db", no_args_is_help=True),
    name="ledger",
    help="Count of all uses of private records, in one file.",
    rich_help_panel=PEOPLE,
)
app.add_typer(
    typer.Typer(cls=StepCommands, epilog=EVERY_STEP, no_args_is_help=True),
    name="step",
    help="Steps of the workflow, listed by `leakbound step --help`.",
    rich_help_panel=WORKFLOW,
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
        from leakbound.words import printable  # slow import

        said = missing(error) if isinstance(error, ModuleNotFoundError) else str(error)
        if isinstance(error, FileNotFoundError) and isinstance(error.filename, str):
            said += nearest_path(Path(error.filename))
        lines = [printable(line) for line in said.split("\n")]  # some words may come from a file
        sys.stderr.write("\n".join(["leakbound: " + lines[0], *lines[1:], ""]))
        raise SystemExit(2) from error


def _explains_itself(error: Exception) -> bool:
    """Return True for errors that are messages to the user: of this package, or about files and modules."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    ours = str(frame.f_globals.get("__name__")).startswith("leakbound.")
    return isinstance(error, OSError | ImportError) or (isinstance(error, ValueError) and ours)
