"""Commands of the lab: for configurations, their runs, and networks of people. Nothing else is loaded here."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from leakbound.commands.command_line import PEOPLE, Group, Place
from leakbound_lab.jobs.paths import OUTPUTS, RULES

RUNS = "Runs"
WORKFLOW = "Workflow"
EVERY_STEP = "Example: snakemake -n -p -j 1 --forceall  # shows each call of a step"


class StepPlace(Place):
    """Place of the command of a rule, which makes results of a step by their names."""

    def function(self) -> Callable[..., Any]:
        """Import the step and return its command."""
        from leakbound_lab.steps.step_command import as_command

        return as_command(getattr(importlib.import_module(self.module), self.name))


STEPS: Mapping[str, Place] = {
    RULES.get(name, name).replace("_", "-"): StepPlace(
        f"leakbound_lab.steps.{name}", "STEP", epilog=EVERY_STEP
    )
    for name in OUTPUTS
}
"""Commands that the rules of the workflow call, in the order of the chain."""
COMMANDS: Mapping[str, Place | Group] = {
    "compare": Place(
        "leakbound_lab.commands.compare",
        "compare",
        PEOPLE,
        "Compare defenses on your own records. Write one page on which is worth its cost and what is undecided.",
    ),
    "audit": Place(
        "leakbound_lab.commands.audit",
        "audit",
        PEOPLE,
        "Compare the leakage that attacks demonstrate with its bound. Exit with code 1 if the bound is exceeded.",
    ),
    "demo": Place(
        "leakbound_lab.commands.demo",
        "demo",
        PEOPLE,
        "Write one offline page of images that an attacker recovers from uploads, without and with a channel.",
    ),
    "publish": Place(
        "leakbound_lab.commands.publish",
        "publish",
        PEOPLE,
        "Write one replica of a run with its channel, privacy event and leakage. Refuse data without a bound.",
    ),
    "plan": Place(
        "leakbound_lab.commands.plan",
        "plan",
        RUNS,
        "Estimate the jobs, hours and disk space of a configuration before anything runs, and the total time.",
    ),
    "config": Place(
        "leakbound_lab.commands.config",
        "config",
        RUNS,
        "Check a configuration, or write the default one and the JSON schema for editors.",
    ),
    "verify": Place(
        "leakbound_lab.commands.verify",
        "verify",
        RUNS,
        "Compare every file of the results with its seal, and its settings with those of the configuration.",
    ),
    "report": Place(
        "leakbound_lab.steps.report",
        "write_report",
        RUNS,
        "Write one offline page with the figures, verdicts, runs and provenance of a finished configuration.",
    ),
    "export": Place(
        "leakbound_lab.commands.export",
        "export",
        RUNS,
        "Write figures and tables of a finished configuration for a paper.",
    ),
    "sync": Place(
        "leakbound_lab.commands.tracking",
        "sync",
        RUNS,
        "Send to MLflow the runs that it has not accepted yet, or all of them if its database is gone.",
    ),
    "ui": Place(
        "leakbound_lab.commands.tracking",
        "ui",
        RUNS,
        "Open MLflow's pages for the runs of a configuration, on this machine only.",
    ),
    "step": Group(STEPS, WORKFLOW, "Steps of the workflow, listed by `leakbound step --help`.", EVERY_STEP),
}
"""Commands that the entry point of the lab adds to those of the library."""
