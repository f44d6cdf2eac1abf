"""Several results of the chain in one process, one after another."""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound import storage
from leakbound.cli.job_settings import plain_settings
from leakbound.cli.step_command import run_step
from leakbound.cli.steps.job_list import job_list
from leakbound.config.reading import config_of
from leakbound.jobs.job import ANEW, WITHOUT_FIGURES, Job, code_of, made_together
from leakbound.storage.provenance import settings_hash


def several(
    settings: Annotated[str, typer.Option(help="Configuration, as JSON.")],
    rule: Annotated[str, typer.Option(help="Rule whose results are made.")],
    of: Annotated[str, typer.Option(help="Dataset, run or paper of these results.")] = "",
    code: Annotated[str, typer.Option(help="Fingerprints of the code behind them, in order.")] = "",
    out: Annotated[Path | None, typer.Option(help="List of all files with their SHA-256, JSON.")] = None,
) -> None:
    """Make all results of a rule that belong to a dataset, a run or a paper of a configuration.

    With ``--out``, results that are finished are not made again if nothing behind them has changed: after a
    kill, and when others join them.
    """
    config = config_of(plain_settings(settings), "--settings")
    made = made_together(job_list(config, figures=rule not in WITHOUT_FIGURES))
    if (rule, of) not in made:
        raise typer.BadParameter(f"--of {of!r}: the configuration has no such results of the rule {rule!r}")
    record = None if out is None else out.with_name(f".{out.name}.parts")
    keys = _recorded(record)
    codes = code.split(",") if code else map(code_of, made[rule, of])
    for job, behind in zip(made[rule, of], codes, strict=True):
        name = f"{job.step} {job.name}"
        if keys.get(name, "") != _key(job, behind):
            make_result(job, behind)
            if record is not None:
                keys[name] = _key(job, behind)
                storage.write_json(record, keys)
    if out is not None:
        paths = sorted(path for job in made[rule, of] for path in job.outputs.values())
        storage.write_json(out, {path: storage.check(path) for path in paths})


def _recorded(record: Path | None) -> dict[str, Any]:
    """Read which results are finished, each with its key. There are none after a crash between file and seal."""
    if record is None or ANEW in os.environ:
        return {}
    try:
        return storage.read_json(record)
    except storage.DamagedFileError:
        return {}


def _key(job: Job, code: str) -> str | None:
    """Hash a result's files and everything that it depends on. None if a file is missing or damaged."""
    try:
        read = [storage.seal_of(path).read_text(encoding="utf-8") for path in job.input_files()]
        made = [storage.check(path) for path in job.outputs.values()]
    except (OSError, storage.DamagedFileError):
        return None
    return settings_hash([job.settings_text(), code, read, made])


def make_result(job: Job, code: str = "") -> None:
    """Run the command of a result in this process. Without the fingerprint of its code, it is computed."""
    sys.stderr.write(f"{job.step} {job.name}\n")
    step = importlib.import_module(f"leakbound.cli.steps.{job.step}").STEP
    options: dict[str, Any] = {role: Path(path) for role, path in job.outputs.items()}
    for role, files in job.inputs.items():
        if isinstance(files, str):
            options[role] = Path(files)
        elif isinstance(files, Mapping):
            options[role] = {name: Path(path) for name, path in files.items()}
        else:
            options["root"] = Path(job.root)
    if "code" in inspect.signature(step.command).parameters:
        options["code"] = code or code_of(job)
    run_step(step, job.settings_text(), options)
