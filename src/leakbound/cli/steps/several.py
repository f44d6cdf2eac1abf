"""Several results of the chain in one process, one after another."""

import importlib
import inspect
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import Field

from leakbound import storage
from leakbound.cli.job_settings import plain_settings
from leakbound.cli.step_command import call
from leakbound.cli.steps.job_list import job_list
from leakbound.config.messages import parse
from leakbound.config.reading import check
from leakbound.config.settings import Name, Settings
from leakbound.jobs.batches import ANEW, parts_of
from leakbound.storage.provenance import settings_hash


class Part(Settings):
    """One result, with the settings of its step and the fingerprint of the code behind it.

    Its files stand under the options of the step's command: a path, or a path for each of several names.
    Files that the command finds below ``--root`` are a list.
    """

    step: Name
    settings: dict[str, Any]
    inputs: dict[str, str | dict[str, str] | list[str]]
    outputs: dict[str, str]
    code: str


class Parts(Settings):
    """Results in the order in which they are made. Each may read files of those before it."""

    root: str
    parts: Annotated[list[Part], Field(min_length=1)]


def several(
    settings: Annotated[str, typer.Option(help="Results to make, or a configuration, as JSON.")],
    rule: Annotated[str, typer.Option(help="Rule whose results of a configuration are made.")] = "",
    of: Annotated[str, typer.Option(help="Dataset, run or paper of these results.")] = "",
    out: Annotated[Path | None, typer.Option(help="List of all files with their SHA-256, JSON.")] = None,
) -> None:
    """Make several results of the chain.

    With ``--out``, results that are finished are not made again if nothing behind them has changed: after a
    kill, and when others join them.
    """
    given = plain_settings(settings)
    if rule:
        given = parts_of(job_list(check(given, "--settings")), rule, of)
    chosen = parse(Parts, given, "--settings")
    finished = None if out is None else _Finished(out.with_name(f".{out.name}.parts"))
    for part in chosen.parts:
        if finished is None:
            _make(part, chosen.root)
        elif not finished.holds(part):
            _make(part, chosen.root)
            finished.add(part)
    if out is not None:
        files = sorted(path for part in chosen.parts for path in part.outputs.values())
        storage.write_json(out, {path: storage.check(path) for path in files})


def _make(part: Part, root: str) -> None:
    """Run the command of a result."""
    sys.stderr.write(f"{part.step} {next(iter(part.outputs.values()))}\n")
    options: dict[str, Any] = {role: Path(path) for role, path in part.outputs.items()}
    for role, files in part.inputs.items():
        if isinstance(files, str):
            options[role] = Path(files)
        elif isinstance(files, dict):
            options[role] = {name: Path(path) for name, path in files.items()}
        else:
            options["root"] = Path(root)
    step = importlib.import_module(f"leakbound.cli.steps.{part.step}").STEP
    if "code" in inspect.signature(step.command).parameters:
        options["code"] = part.code
    call(step, json.dumps(part.settings), options)


class _Finished:
    """Record of finished results: the first file of each, and everything that the result depends on.

    Args:
        path: File of the record.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[str, str] = {}
        if ANEW not in os.environ:
            with suppress(storage.DamagedFileError):  # none yet, or a crash came between it and its seal
                self._keys = storage.read_json(path)

    def holds(self, part: Part) -> bool:
        """Return True if a result is there, made by the same settings and code from the same files."""
        try:
            return self._keys.get(self._name(part)) == self._key(part)
        except (OSError, storage.DamagedFileError):
            return False

    def add(self, part: Part) -> None:
        """Record a finished result."""
        self._keys[self._name(part)] = self._key(part)
        storage.write_json(self._path, self._keys)

    def _name(self, part: Part) -> str:
        return next(iter(part.outputs.values()))

    def _key(self, part: Part) -> str:
        read = [storage.seal_of(path).read_text(encoding="utf-8") for path in _paths(part.inputs)]
        made = [storage.check(path) for path in part.outputs.values()]
        return settings_hash([part.settings, part.code, read, made])


def _paths(inputs: dict[str, str | dict[str, str] | list[str]]) -> Iterator[str]:
    """Yield the paths of all input files."""
    for files in inputs.values():
        yield from [files] if isinstance(files, str) else files.values() if isinstance(files, dict) else files
