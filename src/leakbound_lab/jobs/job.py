"""Results of a configuration: each with its settings, the files that it is made from, and its own files.

One job of Snakemake makes several results together. Its rule and wildcards follow from them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from leakbound_lab import registries
from leakbound_lab.config.settings import Settings
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.fingerprint import code_fingerprint
from leakbound_lab.jobs.paths import OUTPUTS, RULES
from leakbound_lab.jobs.table import RunTable
from leakbound_lab.jobs.unit_costs import Work

Files = str | Sequence[str] | Mapping[str, str]
"""Input of a step: one file, several files below the parameter ``root``, or files by name."""
ANEW = "LEAKBOUND_ANEW"  # set if results are made again even if nothing behind them has changed
_WHOLE = {
    *("theory", "consensus", "federated", "illustrate", "measure", "tabulate", "claims"),
    *("log", "log_figures", "report"),
}
WITHOUT_FIGURES = {
    *("prepare", "covariance", "spectrum", "calibrate", "estimator"),
    *("train", "attack", "federate", "measure"),
}
"""Rules whose results do not depend on the catalogue of figures, which takes half a second to read. Illustrations
in it may need further ones."""


@dataclass(frozen=True)
class Job:
    """One call of a command.

    Attributes:
        step: Kind of the job, with its command and its rule.
        name: Name that distinguishes the job from others of its step, and part of its paths.
        root: Folder of the configuration's results.
        settings: Everything except files on which the job depends, as plain values.
        arguments: Settings that the function of the step takes by name, which are values of the configuration itself.
        inputs: Command-line option to the files that it reads.
        modules: Modules that the command looks up by name, for the code fingerprint.
        purpose: First study that needs the job, or another heading of the plan.
        work: Elementary work in the job, for the plan.
        part_of: Dataset, run, untrained networks or paper of which one job of Snakemake makes all results of the step.
            None for a result that has a job of its own.
        without: Options of files that the step can write, and this job does not.
    """

    step: str
    name: str
    root: PurePosixPath
    settings: Mapping[str, Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Files] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    purpose: str = ""
    work: Callable[[], Iterable[Work]] = tuple
    part_of: str | None = None
    without: tuple[str, ...] = ()

    @property
    def outputs(self) -> dict[str, str]:
        """Return the command-line option of each file that the job writes, with the file."""
        return {
            role: f"{self.root}/{path.format(name=self.name)}"
            for role, path in OUTPUTS[self.step].items()
            if role not in self.without
        }

    def input_files(self) -> list[str]:
        """List all files that the job reads."""
        return [path for files in self.inputs.values() for path in _flat(files)]

    def settings_text(self) -> str:
        """Write the settings as one line of JSON, to hash and to compare them.

        Their order is content: the panels of a figure follow it.
        """
        return json.dumps(self.settings, separators=(",", ":"))


def _flat(files: Files) -> Iterator[str]:
    """Yield the files of one input."""
    yield from [files] if isinstance(files, str) else files.values() if isinstance(files, Mapping) else files


def new_job(
    config: Config,
    step: str,
    name: str,
    settings: Mapping[str, Any],
    *,
    arguments: Mapping[str, Any],
    uses: Mapping[str, Sequence[str]] | None = None,
    modules: Sequence[str] = (),
    **facts: Any,
) -> Job:
    """Make a job whose settings also state all of its arguments, and the plugins that it uses.

    Args:
        config: A checked configuration.
        step: Kind of the job.
        name: Name of the job.
        settings: Everything except files and arguments on which the job depends, as plain values. An argument is among
            them if its plain form leaves something out.
        arguments: Settings that the function of the step takes by name, each a plain value, a part of the
            configuration, a mapping or list of parts, or one with a method ``plain`` that returns its plain values by
            their names.
        uses: Kind of registered objects to the names that the command looks up. None if it looks up none.
        modules: Modules that the command finds by other means, for the code fingerprint.
        facts: Inputs, purpose, work, ``part_of`` and ``without`` of the job.
    """
    for argument, value in arguments.items():
        if argument not in settings:
            stated = value.plain() if hasattr(value, "plain") else {argument: value}
            settings = {**settings, **_plain(stated)}
    looked_up = [*modules]
    if uses is not None:
        declared = config.plugins.model_dump()
        from_outside: dict[str, dict[str, str]] = {}
        for kind, names in uses.items():
            targets = {used: declared[kind].get(used) or registries.KINDS[kind].path(used) for used in names}
            looked_up += [target.partition(":")[0] for target in targets.values()]
            from_outside[kind] = {used: target for used, target in targets.items() if used in declared[kind]}
        settings = {**settings, "plugins": {kind: paths for kind, paths in from_outside.items() if paths}}
    return Job(step, name, config.root, settings, arguments, modules=tuple(looked_up), **facts)


def _plain(value: Any) -> Any:
    """Return an argument of a step as plain values."""
    if isinstance(value, Settings):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Step:
    """A kind of job. The file of a step defines all of these attributes.

    Attributes:
        command: Function behind the command line.
        jobs: Function from the run table to the jobs of this step.
        final: True if all its jobs are made. Jobs of other steps are made only if another job reads their
            files.
    """

    command: Callable[..., Any]
    jobs: Callable[[RunTable], Iterable[Job]]
    final: bool = False

    @property
    def name(self) -> str:
        """Return the name of the step, which is that of its command."""
        return self.command.__name__


class JobList:
    """Jobs of a configuration: the final ones, and those whose files they read.

    Args:
        table: Runs and figures of the configuration.
        steps: All steps, in the order of the chain.

    Attributes:
        table: Runs and figures of the configuration.
        steps: Name to step, in the order of the chain.
        made_by: File to the result that it belongs to.
    """

    def __init__(self, table: RunTable, steps: Iterable[Step]) -> None:
        self.table = table
        self.steps = {step.name: step for step in steps}
        every = {(job.step, job.name): job for step in self.steps.values() for job in step.jobs(table)}
        covariances: dict[tuple[str, str], list[Job]] = {}
        for job in every.values():
            if job.step == "covariance":  # whose rule declares both of a dataset
                covariances.setdefault(rule_of(job), []).append(job)
        self.made_by = {path: job for job in every.values() for path in job.outputs.values()}
        # Final results, and all that these read.
        waiting = [job for job in every.values() if self.steps[job.step].final]
        wanted: set[tuple[str, str]] = set()
        while waiting:
            job = waiting.pop()
            if (job.step, job.name) not in wanted:
                wanted.add((job.step, job.name))
                waiting += [self.made_by[path] for path in job.input_files()]
                waiting += covariances.get(rule_of(job), ())
        self._jobs = {key: job for key, job in every.items() if key in wanted}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def of(self, *steps: str) -> list[Job]:
        """List the jobs of some steps, in order.

        Args:
            steps: Names of the steps.
        """
        return [job for job in self if job.step in steps]

    def job(self, step: str, name: str) -> Job:
        """Return the job of a step with a name.

        Args:
            step: Name of the step.
            name: Name of the job.

        Raises:
            KeyError: If the configuration has no such job.
        """
        if (step, name) not in self._jobs:
            raise KeyError(f"{self.table.config.preset} has no job {name!r} of the step {step}")
        return self._jobs[step, name]

    def files(self, *steps: str) -> list[str]:
        """List the files that the jobs of some steps write.

        Args:
            steps: Names of the steps. All steps if there is none.
        """
        return [path for job in (self.of(*steps) if steps else self) for path in job.outputs.values()]


def rule_of(job: Job) -> tuple[str, str]:
    """Return the rule that makes a result, and the dataset, run, paper or name that its wildcards stand for.

    Args:
        job: Result of a configuration.
    """
    rule = RULES.get(job.step, job.step)
    if rule in _WHOLE:
        return rule, ""
    return rule, job.name if job.part_of is None else job.part_of


@cache
def jobs_by_rule(results: JobList) -> dict[tuple[str, str], list[Job]]:
    """Return the results of each job of Snakemake, by its rule and name, in the order of the chain.

    Args:
        results: Results of a configuration.
    """
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in results:
        groups.setdefault(rule_of(job), []).append(job)
    return groups


def code_of(job: Job) -> str:
    """Return the fingerprint of the code behind a result.

    Args:
        job: Result of a configuration.
    """
    return code_fingerprint(f"leakbound_lab.steps.{job.step}", *job.modules)
