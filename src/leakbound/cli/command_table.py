"""The commands by name. Each is imported when it is called, so a job loads only the file of its step."""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from leakbound.jobs.paths import OUTPUTS

PEOPLE = "For your own records and networks"
RUNS = "Runs"
WORKFLOW = "Workflow"
EVERY_STEP = "Example: snakemake -n -p -j 1 --forceall shows each call of a step with all its settings."


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
    "export": Place("runs.export", "export", RUNS),
    "diff": Place("runs.diff", "diff", RUNS),
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
            function = entry.function()
            # Lines are broken at the width of the terminal, not of the source.
            lines = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(function) or "")
            text, label, examples = lines.partition("\n\nExample: ")
            info = CommandInfo(cmd_name, callback=function, help=text, rich_help_panel=entry.panel)
            info.epilog = f"Example: {examples}" if label else EVERY_STEP
            entry = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")
            self.commands[cmd_name] = entry
        return entry


class AllCommands(_Group):
    """Group of all commands for people."""

    places = COMMANDS


class StepCommands(_Group):
    """Group of the steps of the workflow."""

    places = STEPS
