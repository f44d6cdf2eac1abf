"""Commands of the steps, with options from the parameters of each function, and of several results at once."""

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from leakbound import storage
from leakbound.cli.inputs import check_outputs, named_files
from leakbound.cli.job_settings import plain_settings, read_settings
from leakbound.cli.steps.job_list import job_list
from leakbound.config.reading import config_of
from leakbound.jobs.job import ANEW, WITHOUT_FIGURES, Job, Step, code_of, made_together
from leakbound.jobs.paths import OUTPUTS
from leakbound.storage.provenance import settings_hash

_NAMED = dict[str, Path]
_HELP = {
    "arrays": "Scores or pictures, safetensors.",
    "attacks": "ATTACK=FILE: rows of an attack. May be repeated.",
    "channel": "Channel, written by `step calibrate`.",
    "channels": "DEFENSE=FILE: channel of a defense. May be repeated.",
    "code": "Fingerprint of the code that trains. Checkpoints of other code are not resumed.",
    "counts": "Number of claims for each paper and verdict, Parquet.",
    "curves": "Curves of a training, Parquet.",
    "dataset": "Prepared images, written by `step prepare`.",
    "estimator": "Learned estimate of images, written by `step estimator`.",
    "federated": "Rows of a federated run, Parquet.",
    "marker": "Whether the store accepted the MLflow run, and where it is there.",
    "members": "Mean and covariance of the members, written by `step covariance`.",
    "moments": "Mean and covariance, written by `step covariance`.",
    "out": "Result. The suffix determines the format.",
    "png": "The same picture as PNG, next to the SVG file under the same name.",
    "provenance": "Provenance, JSON.",
    "references": "Weights of reference networks, written by `step references`.",
    "root": "Folder of the configuration's results.",
    "rows": "Tidy rows, Parquet.",
    "scoreboard": "Scoreboard, Markdown.",
    "shown": "The rows that the picture shows, Parquet.",
    "spectra": "NAME=FILE: spectrum of a defense's channel, or of a family of channels. May be repeated.",
    "spectrum": "Spectrum, written by `step spectrum`.",
    "svg": "Picture, SVG.",
    "trained": "Learning rate of each reference network, Parquet.",
    "rates": "Candidate learning rates and the choice among them, written by `step train`.",
    "weights": "Weights of all replicas, safetensors.",
}


def run_step(step: Step, settings: str, options: Mapping[str, Any]) -> None:
    """Check the settings and outputs of a step, and call its function.

    Args:
        step: Step of the workflow.
        settings: Settings as JSON.
        options: Further parameters of the function: files.
    """
    check_outputs(*(options[role] for role in OUTPUTS[step.name]))
    checked = read_settings(settings, step.settings)
    takes_plain = "plain" in inspect.signature(step.command).parameters
    plain = {"plain": plain_settings(settings)} if takes_plain else {}
    step.command(settings=checked, **options, **plain)


def as_command(step: Step) -> Callable[..., None]:
    """Make the command of a step, with ``--settings`` and an option for each other parameter of its function.

    The function gets the checked settings as its parameter ``settings``. If it also has a parameter
    ``plain``, it gets them as they were given. Files by name have the form ``NAME=FILE``. A function that
    takes no checked settings is used as a command unchanged.

    Args:
        step: Step of the workflow.
    """
    function = step.command
    hints = get_type_hints(function, include_extras=True)
    if hints.get("settings") != step.settings:
        return function

    def run(settings: str, **options: Any) -> None:
        files = {name: named_files(options[name]) for name, hint in hints.items() if hint == _NAMED}
        run_step(step, settings, {**options, **files})

    needed = any(field.is_required() for field in step.settings.model_fields.values())
    nothing = inspect.Parameter.empty if needed else "{}"
    about = Annotated[str, typer.Option(help="Settings of the job, as JSON.")]
    parameters = [
        inspect.Parameter("settings", inspect.Parameter.KEYWORD_ONLY, default=nothing, annotation=about)
    ]
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("settings", "plain"):
            hint = list[str] if hints[name] == _NAMED else hints[name]
            if get_origin(hint) is not Annotated:
                hint = Annotated[hint, typer.Option(help=_HELP.get(name, f"See {function.__module__}."))]
            default = [] if hints[name] == _NAMED else parameter.default
            parameters.append(
                parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)
            )
    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def several(
    settings: Annotated[str, typer.Option(help="Configuration, as JSON.")],
    rule: Annotated[str, typer.Option(help="Rule whose results are made.")],
    of: Annotated[str, typer.Option(help="Dataset, run or paper of these results.")] = "",
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
    for job in made[rule, of]:
        name = f"{job.step} {job.name}"
        if keys.get(name, "") != _key(job):
            make_result(job)
            if record is not None:
                keys[name] = _key(job)
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


def _key(job: Job) -> str | None:
    """Hash a result's files and everything that it depends on. None if a file is missing or damaged."""
    try:
        read = [storage.seal_of(path).read_text(encoding="utf-8") for path in job.input_files()]
        made = [storage.check(path) for path in job.outputs.values()]
    except (OSError, storage.DamagedFileError):
        return None
    return settings_hash([job.settings_text(), code_of(job), read, made])


def make_result(job: Job) -> None:
    """Run the command of a result in this process."""
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
        options["code"] = code_of(job)
    run_step(step, job.settings_text(), options)
