"""Commands of the steps, with options from the parameters of each step's function."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_origin, get_type_hints

import typer

from leakbound.cli.inputs import check_outputs, named_files
from leakbound.cli.job_settings import plain_settings, read_settings
from leakbound.jobs.job import Step
from leakbound.jobs.paths import OUTPUTS

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
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("settings", keyword, default=nothing, annotation=about)]
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("settings", "plain"):
            hint = list[str] if hints[name] == _NAMED else hints[name]
            if get_origin(hint) is not Annotated:
                hint = Annotated[hint, typer.Option(help=_HELP.get(name, f"See {function.__module__}."))]
            default = [] if hints[name] == _NAMED else parameter.default
            parameters.append(parameter.replace(kind=keyword, annotation=hint, default=default))
    run.__name__ = function.__name__
    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
