"""The command line as a whole. It turns each mistake of the user into one message.

Each command is imported when it is called, so a job loads only the file of its step. Other packages add commands by
entry points.
"""

import gc
import importlib
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from leakbound import __version__
from leakbound.commands.option_groups import with_single_options
from leakbound.registry import missing, nearest_path

PEOPLE = "For your own records and networks"
"""Heading of the commands that need no configuration."""
_ADDED = "leakbound.commands"  # group of entry points
INTERRUPTED = 130
"""Exit status of a command that Ctrl-C has ended, as shells count it."""
_DEFECT = (
    "leakbound: this is a defect of the program, or of a plugin if the lines above end in one. No input "
    "should cause it. Please report all of these lines with the command."
)


class Place(NamedTuple):
    """Place of a command.

    Attributes:
        module: Module of the command.
        name: Function in the module.
        panel: Heading of the command in the help.
        line: First paragraph of its help, which the help of all commands shows.
        epilog: End of its help, if the function gives no example.
    """

    module: str
    name: str
    panel: str = ""
    line: str = ""
    epilog: str = ""

    def function(self) -> Callable[..., Any]:
        """Import and return the function behind the command."""
        function: Callable[..., Any] = getattr(importlib.import_module(self.module), self.name)
        return function


class Group(NamedTuple):
    """Commands that share their first word.

    Attributes:
        places: Second word to the place of the command.
        panel: Heading of the group in the help of all commands.
        line: Help of the group.
        epilog: End of its help.
    """

    places: Mapping[str, Place]
    panel: str
    line: str
    epilog: str


_LEDGERS: Mapping[str, Place] = {
    "new": Place(
        "leakbound.commands.ledger",
        "new",
        "",
        "Make a ledger, in which all runs that name it count what they reveal of each record.",
    ),
    "show": Place(
        "leakbound.commands.ledger",
        "show",
        "",
        "Show since when a ledger counts, in how many runs, which channels were used, and where noise is seeded.",
    ),
}
COMMANDS: Mapping[str, Place | Group] = {
    "protect": Place(
        "leakbound.commands.protect",
        "protect",
        PEOPLE,
        "Add calibrated noise to every record and report how much the copies leak. Choose exactly one target.",
    ),
    "calibrate": Place(
        "leakbound.commands.calibrate",
        "calibrate_records",
        PEOPLE,
        "Show how much noise a target needs and what the noisy records then leak. Choose exactly one target.",
    ),
    "risk": Place(
        "leakbound.commands.risk_translation",
        "risk",
        PEOPLE,
        "Translate nats into risks of identification, membership inference and reconstruction. Suggest targets.",
    ),
    "account": Place(
        "leakbound.commands.account",
        "account",
        PEOPLE,
        "Show bounds on what a training reveals about one record: as published, as a sum of uses, and jointly.",
    ),
    "ledger": Group(
        _LEDGERS,
        PEOPLE,
        "Count of all uses of private records, in one file.",
        "Example: leakbound ledger new uses.db",
    ),
}
"""Commands of the library. Installed packages add others: :func:`every_command`."""


@cache
def every_command() -> Mapping[str, Place | Group]:
    """Return the commands of the library and those of installed packages.

    A package adds commands by an entry point of the group ``leakbound.commands``, which names a mapping of words
    to places or groups. The module of this mapping should import little: it is loaded with every command.

    Raises:
        ValueError: If two packages add a command of one name.
    """
    commands = dict(COMMANDS)
    for entry in entry_points(group=_ADDED):
        for name, place in entry.load().items():
            if commands.setdefault(name, place) != place:
                raise ValueError(
                    f"the entry point {entry.value} adds the command {name!r}, which is there already"
                )
    return commands


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


class _Commands(TyperGroup):
    """Group of commands that are imported when they are called."""

    places: Mapping[str, Place | Group] = MappingProxyType({})
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
            return TyperCommand(cmd_name, help=entry.line, rich_help_panel=entry.panel or None)
        if isinstance(entry, Place | Group):
            entry = self.commands[cmd_name] = (
                _group(cmd_name, entry) if isinstance(entry, Group) else _command(cmd_name, entry)
            )
        return entry


def _group(name: str, group: Group) -> Any:
    """Make the group of the commands that share a first word."""
    inner = type("_Inner", (_Commands,), {"places": group.places})
    return get_group_from_info(
        TyperInfo(
            typer.Typer(cls=inner, epilog=group.epilog, no_args_is_help=True),
            name=name,
            help=group.line,
            rich_help_panel=group.panel,
        ),
        pretty_exceptions_short=True,
        rich_markup_mode="rich",
        suggest_commands=True,
    )


def _command(name: str, place: Place) -> Any:
    """Import a command."""
    function = place.function()
    # Lines are broken at the width of the terminal, not of the source.
    lines = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
    text, label, examples = lines.partition("\n\nExample: ")
    info = CommandInfo(name, cls=_Command, callback=with_single_options(function), help=text)
    info.rich_help_panel = place.panel or None
    info.epilog = f"Example: {examples}" if label else place.epilog
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")


class AllCommands(_Commands):
    """Group of all commands."""

    def __init__(self, **settings: Any) -> None:
        self.places = every_command()
        super().__init__(**settings)


app = typer.Typer(
    cls=AllCommands,
    help="Measure and bound how much a federated client's uploads reveal about its data.",
    epilog="Example: leakbound risk --nats 2 --records 1000",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
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
    """Return True for errors that are messages to the user: of the package of a command, or about files and modules."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    packages = {"leakbound", *(entry.module.partition(".")[0] for entry in entry_points(group=_ADDED))}
    ours = str(frame.f_globals.get("__name__")).partition(".")[0] in packages
    return isinstance(error, OSError | ImportError) or (isinstance(error, ValueError) and ours)
