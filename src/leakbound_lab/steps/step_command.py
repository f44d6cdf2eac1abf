"""Commands of the workflow's rules: results of a configuration, made by their names."""

import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from leakbound import storage
from leakbound.commands.files import check_outputs
from leakbound_lab.config.reading import config_of, load
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs import coordination
from leakbound_lab.jobs.job import WITHOUT_FIGURES, Job, Step, code_of, jobs_by_rule
from leakbound_lab.jobs.paths import OUTPUTS, RULES
from leakbound_lab.steps.job_settings import ConfigOption, register_plugins
from leakbound_lab.steps.kept import keep, restore

_OF_A_RUN = ".configuration.json"  # as workflow/rules/common.smk names it


def as_command(step: Step) -> Callable[..., None]:
    """Make the command of a rule, which makes results of a configuration by their names.

    Args:
        step: Step whose results the rule makes, and whose function describes them.
    """
    rule = RULES.get(step.name, step.name)

    def run(
        names: Annotated[
            list[str] | None,
            typer.Argument(
                metavar="[NAME]...",
                help="Dataset, run, paper or name of the results, or its beginning. Default: all of the rule.",
            ),
        ] = None,
        configfile: ConfigOption = Path("config/config.yaml"),
        code: Annotated[
            str,
            typer.Option(
                help="Fingerprints of the code behind the results, in order. Computed without them."
            ),
        ] = "",
    ) -> None:
        coordination.follow_coordinator()
        in_force = configfile.name == _OF_A_RUN
        make_results(configuration(configfile), rule, names or (), code=code, checked=in_force)

    run.__name__ = step.name
    run.__doc__ = step.command.__doc__
    return run


def configuration(path: Path) -> Config:
    """Read a configuration of a person, YAML or JSON, or the one in force that a run has written, with a seal.

    Args:
        path: The file.

    Raises:
        ConfigError: With every mistake found in it.
        DamagedFileError: If the file of a run does not match its seal.
        typer.BadParameter: If no run has written it.
    """
    if path.name != _OF_A_RUN:
        return load(path)
    if not path.exists():
        raise typer.BadParameter(
            f"{path}: there is no such file, which the workflow writes when it starts. A workflow that takes this "
            "one in as a module calls its handlers: onstart: lab.onstart() (docs/cluster.md, In another project)"
        )
    return config_of(storage.read_json(path), str(path))


def make_results(
    config: Config, rule: str, names: Sequence[str], *, code: str = "", checked: bool = False
) -> None:
    """Make results of a rule, one after another in this process.

    Those that are finished are not made again if nothing behind them has changed (:mod:`leakbound_lab.steps.kept`).

    Args:
        config: A checked configuration.
        rule: Rule of the workflow.
        names: Datasets, runs, papers or names of results, or beginnings of these up to a slash. All results of the rule
            without any.
        code: Fingerprints of the code behind the results, in order, separated by commas. Computed if empty.
        checked: Whether the catalogue of figures was checked when the run began.

    Raises:
        typer.BadParameter: If the configuration has no results of a name, or not one fingerprint for each result.
    """
    jobs = _jobs_of(config, rule, names, checked=checked)
    codes = code.split(",") if code else [""] * len(jobs)
    if len(codes) != len(jobs):
        raise typer.BadParameter(
            f"--code: {len(codes)} fingerprints for {len(jobs)} results; give one for each"
        )
    for job, behind in zip(jobs, codes, strict=True):
        if not restore(job, behind):
            if len(jobs) > 1:
                sys.stderr.write(f"{job.step} {job.name}\n")
            make_result(job, behind)


def _jobs_of(config: Config, rule: str, names: Sequence[str], *, checked: bool) -> list[Job]:
    """Return the results of a rule that belong to some names, in the order of the chain for each."""
    groups = _groups_of(config, rule, figures=rule not in WITHOUT_FIGURES, checked=checked)
    if rule in WITHOUT_FIGURES and not ({*names} <= {*groups} and names):
        groups = _groups_of(config, rule, figures=True, checked=checked)
    if not groups:
        raise typer.BadParameter(f"{config.preset} has no results of the rule {rule}")
    every = {(job.step, job.name): job for jobs in groups.values() for job in jobs}
    chosen: dict[str, Job] = {}  # once each, though names may say it twice
    for name in names or groups:
        results = groups.get(name) or [job for job in every.values() if f"{job.name}/".startswith(f"{name}/")]
        if not results:
            near = difflib.get_close_matches(name, [*groups, *(of for _, of in every)], n=3, cutoff=0)
            raise typer.BadParameter(
                f"{config.preset} has no result {name!r} of the rule {rule}; nearest: {', '.join(filter(None, near))}"
            )
        chosen |= {f"{job.step} {job.name}": job for job in results}
    return [*chosen.values()]


def _groups_of(config: Config, rule: str, *, figures: bool, checked: bool) -> dict[str, list[Job]]:
    """Return what each name of a rule stands for, with or without what only figures need."""
    from leakbound_lab.steps.job_list import job_list

    made = jobs_by_rule(job_list(config, figures=figures, checked=checked))
    return {of: jobs for (other, of), jobs in made.items() if other == rule}


def make_result(job: Job, code: str = "") -> None:
    """Run the function of a result's step in this process, and keep what it makes.

    Args:
        job: Result of a configuration.
        code: Fingerprint of the code behind it. Computed if empty and needed.
    """
    step = importlib.import_module(f"leakbound_lab.steps.{job.step}").STEP
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
    run_step(step, job.settings, options, job.arguments)
    keep(job, code)


def run_step(
    step: Step, settings: Mapping[str, Any], options: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Check the outputs of a step, register the plugins of its settings, and call its function.

    Args:
        step: Step of the workflow.
        settings: Plain settings, for the provenance.
        options: Further parameters of the function: files.
        arguments: Settings as the function takes them by name.

    Raises:
        ConfigError: If there are no such plugins.
        typer.BadParameter: If an output cannot be written.
    """
    check_outputs(*(options[role] for role in OUTPUTS[step.name] if role in options))
    register_plugins(settings.get("plugins", {}))
    takes_plain = "plain" in inspect.signature(step.command).parameters
    step.command(**arguments, **options, **({"plain": settings} if takes_plain else {}))
