"""Call the command line in this process as a shell would, and look at what it says and leaves."""

from __future__ import annotations

import importlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints
from unittest import mock

import typer
from pydantic import TypeAdapter

from leakbound import storage
from leakbound.commands.command_line import main
from leakbound.registry import Registry
from leakbound_lab import registries
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.messages import parse
from leakbound_lab.config.settings import Settings
from leakbound_lab.config.training import TrainingConfig, TrainingSettings
from leakbound_lab.jobs.job import Job, Step
from leakbound_lab.steps.step_command import run_step

REGISTRIES = [one for one in vars(registries).values() if isinstance(one, Registry)]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What it said to the user, without frames and line breaks."""
        return " ".join(self.err.translate(str.maketrans("│╭╮╰╯─", "      ")).split())


def called(*words: object, program: Callable[[], object] = main) -> Outcome:
    """Call a program; an error that it does not turn into a message comes through, as its traceback would."""
    out, err = io.StringIO(), io.StringIO()
    names = [dict(one._entries) for one in REGISTRIES]
    code: object = 0
    try:
        with (
            mock.patch.object(sys, "argv", ["leakbound", *map(str, words)]),
            mock.patch.dict(os.environ, COLUMNS="500"),  # a narrow box would break long paths into two
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            program()
    except SystemExit as ended:
        code = ended.code
    finally:
        for one, known in zip(REGISTRIES, names, strict=True):
            one._entries = known
    return Outcome(int(code or 0), out.getvalue(), err.getvalue())


def succeeded(*words: object) -> Outcome:
    """Call a command that does its work."""
    return done(called(*words))


def done(outcome: Outcome) -> Outcome:
    """A command that has done its work."""
    assert outcome.code == 0, outcome.err
    return outcome


def refusal(*words: object) -> str:
    """What a command says that cannot do its work."""
    return refused(called(*words))


def refused(outcome: Outcome) -> str:
    """What a command has said that could not do its work."""
    assert outcome.code == 2, outcome.out
    assert "Traceback" not in outcome.err
    return outcome.message


def training_arguments(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What the step of a training takes, from plain values as a configuration has them."""
    values = {name: value for name, value in plain.items() if name not in ("dataset", "keeps_all", "training")}
    values["defense"] = TypeAdapter(Defense).validate_python(plain["defense"])
    config = TrainingConfig.model_validate(plain["training"])
    return {"training": TrainingSettings(**values, config=config), "keeps_all": plain.get("keeps_all", False)}


def arguments_of(step: Step, plain: Mapping[str, Any]) -> dict[str, Any]:
    """What a step takes by name, from plain values as a configuration has them."""
    hints = get_type_hints(step.command)
    return {name: _argument(hints[name], value) for name, value in plain.items() if name in hints}


def _argument(kind: Any, value: Any) -> Any:
    """A part of a configuration, read as that of a file is, or another value."""
    if inspect.isclass(kind) and issubclass(kind, Settings):
        return parse(kind, value, "settings")
    return TypeAdapter(kind).validate_python(value)


def step_called(
    name: str, settings: Any, files: Mapping[str, object], arguments: Mapping[str, Any] | None = None
) -> Outcome:
    """Call a step with settings and files of one's own, as its rule calls it with those of a configuration.

    A file of several under one parameter is given as ``PARAMETER=NAME``.
    """
    step: Step = importlib.import_module(f"leakbound_lab.steps.{name.replace('-', '_')}").STEP
    hints = get_type_hints(step.command)
    options: dict[str, Any] = {role: {} for role, hint in hints.items() if hint == dict[str, Path]}
    for role, path in files.items():
        option, _, key = role.partition("=")
        if key:
            options[option][key] = Path(str(path))
        else:
            options[option] = path if option == "code" else Path(str(path))
    parameters = inspect.signature(step.command).parameters
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    options = {role: value for role, value in options.items() if takes_all or role in parameters}
    program = typer.Typer(pretty_exceptions_enable=False)

    @program.command()
    def _() -> None:
        run_step(step, settings, options, arguments_of(step, settings) if arguments is None else arguments)

    return called(program=lambda: main(program))


def job_called(job: Job) -> Outcome:
    """Make one result of a configuration by the function of its step."""
    files: dict[str, object] = dict(job.outputs)
    for role, every in job.inputs.items():
        if isinstance(every, str):
            files[role] = every
        elif isinstance(every, Mapping):
            files |= {f"{role}={name}": path for name, path in every.items()}
        else:
            files["root"] = job.root
    return step_called(job.step, job.settings, files, job.arguments)


def files_in(folder: Path) -> list[str]:
    """All files below a folder, hidden and temporary ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def written_to(folder: Path) -> set[str]:
    """Files below a folder that have been written whole: each has its seal."""
    names = files_in(folder)
    seals = {name for name in names if Path(name).match(".*.sha256")}
    for name in set(names) - seals:
        storage.check(folder / name)
    return set(names) - seals


def assert_refused(outcome: Outcome, folder: Path) -> None:
    """It has ended with a message and has left no file."""
    assert outcome.code != 0
    assert outcome.message
    assert "Traceback" not in outcome.err
    assert len(outcome.err) < 10_000
    assert files_in(folder) == []
