"""The commands by name, each imported when it is called: a job that does one step loads the file of that step."""

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from typer.core import TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from leakbound.jobs.paths import OUTPUTS

PEOPLE, RUNS, WORKFLOW = "For your own records and networks", "Runs", "Workflow"


@dataclass(frozen=True)
class Place:
    """Place of a command.

    Attributes:
        module: Module of the command line.
        name: Function in it; ``STEP`` for a step of the workflow.
        panel: Heading of the help that it stands under.
    """

    module: str
    name: str
    panel: str | None = None

    def function(self) -> Callable[..., Any]:
        """The function behind the command, imported."""
        found: Any = getattr(importlib.import_module(f"leakbound.cli.{self.module}"), self.name)
        if self.name != "STEP":
            return found
        from leakbound.cli.step_command import as_command

        return as_command(found)


COMMANDS: Mapping[str, Place] = {
    "protect": Place("people.protect", "protect", PEOPLE),
    "calibrate": Place("people.calibrate", "calibrate", PEOPLE),
    "compare": Place("people.compare", "compare", PEOPLE),
    "risk": Place("people.risk", "risk", PEOPLE),
    "account": Place("people.account", "account", PEOPLE),
    "audit": Place("people.audit", "audit", PEOPLE),
    "demo": Place("people.demo", "demo", PEOPLE),
    "publish": Place("people.publish", "publish", PEOPLE),
    "plan": Place("runs.plan", "plan", RUNS),
    "config": Place("runs.config", "config", RUNS),
    "verify": Place("runs.verify", "verify", RUNS),
    "report": Place("runs.report", "report", RUNS),
    "figures": Place("runs.reference", "figures", RUNS),
    "reference": Place("runs.reference", "reference", RUNS),
    "sync": Place("runs.tracking", "sync", RUNS),
    "ui": Place("runs.tracking", "ui", RUNS),
    "tracking-server": Place("runs.tracking", "tracking_server", RUNS),
}
"""Commands for people."""
STEPS: Mapping[str, Place] = {name.replace("_", "-"): Place(f"steps.{name}", "STEP") for name in OUTPUTS}
"""Commands that the rules of the workflow call, in the order of the chain."""


class _OnDemand(MutableMapping[str, Any]):
    """Commands by name: those of some places, and others that are there already, after them.

    Args:
        places: Name to place.
        others: Name to command.
    """

    def __init__(self, places: Mapping[str, Place], others: Mapping[str, Any]) -> None:
        self._places, self._ready = places, dict(others)
        self._names = dict.fromkeys([*places, *others])

    def __getitem__(self, name: str) -> Any:
        if name not in self._ready:
            place = self._places[name]
            info = CommandInfo(name, callback=place.function(), rich_help_panel=place.panel)
            self._ready[name] = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode="rich")
        return self._ready[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._names[name] = None
        self._ready[name] = command

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        self._ready.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class _Group(TyperGroup):
    """Group of commands that are imported when they are called."""

    places: ClassVar[Mapping[str, Place]]

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = _OnDemand(self.places, self.commands)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in order."""
        return list(self.commands)


class AllCommands(_Group):
    """Group of all commands for people."""

    places = COMMANDS


class StepCommands(_Group):
    """Group of the steps of the workflow."""

    places = STEPS
