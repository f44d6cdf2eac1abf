"""Jobs: one call of a command each, with its settings, the files that it reads and those that it writes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from leakbound import registry
from leakbound.config.settings import Settings
from leakbound.config.whole import Config
from leakbound.jobs.paths import OUTPUTS, inside
from leakbound.jobs.plan.work import Work
from leakbound.jobs.table import RunTable

Files = str | Sequence[str] | Mapping[str, str]
"""Input of a command: one file; several that it finds below ``--root``; or files by name, as ``--option NAME=FILE``."""


@dataclass(frozen=True)
class Job:
    """One call of a command.

    Attributes:
        step: Kind of the job: its command and its rule.
        name: Tells it from others of its step; part of its paths.
        root: Folder of the configuration's results.
        settings: Everything that it depends on in addition to files, plain values.
        inputs: Command-line option to what it reads.
        modules: Modules that the command finds by name, for the code fingerprint.
        purpose: Study that asks for it first, or another heading of the plan.
        work: Elementary work in it, for the plan.
    """

    step: str
    name: str
    root: PurePosixPath
    settings: Mapping[str, Any]
    inputs: Mapping[str, Files] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    purpose: str = ""
    work: Callable[[], Iterable[Work]] = tuple

    @property
    def outputs(self) -> dict[str, str]:
        """Command-line option to the file that the job writes."""
        return {role: f"{self.root}/{inside(self.step, self.name, role)}" for role in OUTPUTS[self.step]}

    def input_files(self) -> list[str]:
        """All files that the job reads."""
        return [path for files in self.inputs.values() for path in _flat(files)]

    def options(self) -> str:
        """Files as options of the command line."""
        words = []
        for role, files in self.inputs.items():
            if isinstance(files, str):
                words += [f"--{role}", files]
            elif isinstance(files, Mapping):
                words += [word for name, path in files.items() for word in (f"--{role}", f"{name}={path}")]
        if any(not isinstance(files, str | Mapping) for files in self.inputs.values()):
            words += ["--root", str(self.root)]
        return " ".join(
            [*words, *(word for role, path in self.outputs.items() for word in (f"--{role}", path))]
        )

    def settings_text(self) -> str:
        """The settings as one line of JSON, as the command's ``--settings``."""
        return json.dumps(self.settings, sort_keys=True, separators=(",", ":"))


def _flat(files: Files) -> Iterator[str]:
    """The files of one input."""
    yield from [files] if isinstance(files, str) else files.values() if isinstance(files, Mapping) else files


def new_job(
    config: Config,
    step: str,
    name: str,
    settings: Mapping[str, Any],
    *,
    uses: Mapping[str, Sequence[str]] | None = None,
    modules: Sequence[str] = (),
    **facts: Any,
) -> Job:
    """A job whose settings also say which of the things that it looks up come from outside the package.

    ``uses`` is the kind of registered things to the names that the command looks up, None if it looks up
    none. ``modules`` are found by other means and count for the code fingerprint. ``facts`` are inputs,
    purpose and work.
    """
    behind = [*modules]
    if uses is not None:
        declared = config.plugins.model_dump()
        from_outside: dict[str, dict[str, str]] = {}
        for kind, names in uses.items():
            targets = {used: declared[kind].get(used) or registry.KINDS[kind].path(used) for used in names}
            behind += [target.partition(":")[0] for target in targets.values()]
            if outside := {used: target for used, target in targets.items() if used in declared[kind]}:
                from_outside[kind] = outside
        settings = {**settings, "plugins": from_outside}
    return Job(step, name, config.root, settings, modules=tuple(behind), **facts)


@dataclass(frozen=True)
class Step:
    """A kind of jobs. Its file holds all of this.

    Attributes:
        settings: Model of its jobs' settings.
        command: Function behind the command line.
        jobs: Jobs that a configuration has of it.
        resources: Entry of the configuration's ``resources`` that says what a job asks for. None for next to
            nothing.
        group: Name that jobs share which may run in one allocation of a cluster.
        local: Whether its jobs run on the machine of Snakemake, on a cluster too.
        final: Whether its jobs are made for themselves; of the others those are made that a job reads.
        resumes: Whether an interrupted job resumes from a checkpoint, if that was made by the same code.
        watched: Hash of what else a job depends on, which neither its settings nor its inputs hold.
    """

    settings: type[Settings]
    command: Callable[..., Any]
    jobs: Callable[[RunTable], Iterable[Job]]
    resources: str | None = "figures"
    group: str | None = None
    local: bool = False
    final: bool = False
    resumes: bool = False
    watched: Callable[[Job, RunTable], str] | None = None

    @property
    def name(self) -> str:
        """Name of the step: that of its command."""
        return self.command.__name__

    @property
    def module(self) -> str:
        """File of the step."""
        return self.command.__module__


class JobList:
    """Jobs of a configuration: the final ones, and those that make what these read.

    Attributes:
        table: Runs and figures of the configuration.
        steps: Name to step, in the order of the chain.
    """

    def __init__(self, table: RunTable, steps: Iterable[Step]) -> None:
        self.table = table
        self.steps = {step.name: step for step in steps}
        every = [job for step in self.steps.values() for job in step.jobs(table)]
        made_by: dict[str, Job] = {}
        for path, writer in [(path, job) for job in every for path in job.outputs.values()]:
            if (other := made_by.setdefault(path, writer)) is not writer:
                raise ValueError(
                    f"{path}: {other.step} {other.name} and {writer.step} {writer.name} both write it"
                )
        waiting = [job for job in every if self.steps[job.step].final]
        wanted: set[tuple[str, str]] = set()
        while waiting:
            job = waiting.pop()
            if (job.step, job.name) not in wanted:
                wanted.add((job.step, job.name))
                waiting += [made_by[path] for path in job.input_files()]
        self._jobs = {(job.step, job.name): job for job in every if (job.step, job.name) in wanted}

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __len__(self) -> int:
        return len(self._jobs)

    def of(self, *steps: str) -> list[Job]:
        """Jobs of some steps, in order."""
        return [job for job in self if job.step in steps]

    def job(self, step: str, name: str) -> Job:
        """The job of a step with a name.

        Raises:
            KeyError: If the configuration has no such job.
        """
        if (step, name) not in self._jobs:
            raise KeyError(f"{self.table.config.preset} has no job {name!r} of the step {step}")
        return self._jobs[step, name]

    def files(self, *steps: str, role: str | None = None) -> list[str]:
        """Files that the jobs of some steps write, of all if none is named, or only those of one option."""
        return [
            path
            for job in (self.of(*steps) if steps else self)
            for kind, path in job.outputs.items()
            if role in (None, kind)
        ]
