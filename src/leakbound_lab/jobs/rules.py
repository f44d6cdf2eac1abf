"""Answers to what the rules of the workflow ask about the results of a configuration. They read no file."""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leakbound.storage.provenance import settings_hash
from leakbound_lab.jobs.job import Job, JobList, code_of, jobs_by_rule

Wildcards = Mapping[str, str]
RUN = "[a-z][a-z0-9_]*/[a-z][a-z0-9_]*/[a-z0-9_.e+-]+/n[0-9]+(-b[0-9]+)?"
"""Regular expression of the names of runs: dataset, network, defense with its level, steps and batch."""
_PARTS = re.compile("[^/-]+[/-]?")  # of a name: dataset, network, defense, level, steps, batch


@dataclass(frozen=True)
class AttackList:
    """Attacks that some runs have in common.

    Attributes:
        attacks: Names of the attacks.
        references: Whether reference networks are trained for them.
        runs: Regular expression of the names of these runs, and of no other run that is attacked.
    """

    attacks: tuple[str, ...]
    references: bool
    runs: str

    @property
    def rule(self) -> str:
        """Return the name of the rule of these runs, e.g. ``attack_membership_and_model_inversion``."""
        return f"attack_{'_and_'.join(self.attacks)}"


@dataclass(frozen=True)
class Untrained:
    """Untrained networks that one job attacks.

    Attributes:
        name: Name of the job, e.g. ``digits/mlp/untrained``.
        priority: Priority of the job.
    """

    name: str
    priority: int

    @property
    def rule(self) -> str:
        """Return the name of the rule, e.g. ``attack_untrained_digits-mlp``."""
        dataset, model, rest = self.name.split("/")
        return f"attack_untrained_{dataset}-{model}{rest.removeprefix('untrained')}"


class Rules:
    """Results of a configuration, as the rules ask for them: by rule, and by a pattern that wildcards complete.

    Args:
        results: Results of a configuration.
        error: Class of the error for a name that no job has.
    """

    def __init__(self, results: JobList, error: type[Exception] = ValueError) -> None:
        self._results = results
        self._error = error
        self._jobs = jobs_by_rule(results)
        self._positions = {run: position for position, run in enumerate(results.table.runs)}

    def results(self, rule: str, name: str = "") -> list[Job]:
        """Return all results of a job.

        Args:
            rule: Rule of the workflow.
            name: Dataset, run or paper that its wildcards stand for, empty without wildcards.

        Raises:
            Exception: Of the class ``error``, with the nearest names, if the configuration has no such job.
        """
        if (rule, name) not in self._jobs:
            names = [of for other, of in self._jobs if other == rule]
            close = difflib.get_close_matches(name, names, n=3, cutoff=0)
            raise self._error(
                f"{self._results.table.config.preset} has no job {name!r} of the rule {rule}; "
                f"nearest: {', '.join(close) or 'none'}"
            )
        return self._jobs[rule, name]

    def results_hash(self, rule: str, pattern: str = "") -> Callable[[Wildcards], str]:
        """Return the function from wildcards to the hash of settings and code of all results of a job.

        Args:
            rule: Rule of the workflow.
            pattern: Name of the job.
        """

        def of(wildcards: Wildcards) -> str:
            jobs = self.results(rule, pattern.format(**wildcards))
            return settings_hash([(job.name, job.settings_text(), code_of(job)) for job in jobs])

        return of

    def codes(self, rule: str, pattern: str) -> Callable[[Wildcards], str]:
        """Return the function from wildcards to the fingerprints of the code behind all results of a job.

        The job would need half a second to find them.

        Args:
            rule: Rule of the workflow.
            pattern: Name of the job.
        """
        return lambda wildcards: ",".join(map(code_of, self.results(rule, pattern.format(**wildcards))))

    def files_read(self, rule: str, name: str, *steps: str) -> list[str]:
        """List the files of some steps that the results of a job read.

        Args:
            rule: Rule of the workflow.
            name: Dataset, run or paper that its wildcards stand for, empty without wildcards.
            *steps: Steps that make the files.
        """
        read = [path for job in self._jobs.get((rule, name), ()) for path in job.input_files()]
        return [path for path in dict.fromkeys(read) if self._results.made_by[path].step in steps]

    def files(self, rule: str, name: str, *suffixes: str) -> list[str]:
        """List the files that a job writes.

        Args:
            rule: Rule of the workflow.
            name: Dataset, run or paper that its wildcards stand for, empty without wildcards.
            *suffixes: Endings of their names.
        """
        written = [path for job in self.results(rule, name) for path in job.outputs.values()]
        return [path for path in written if path.endswith(suffixes)]

    def reads(self, rule: str, pattern: str, *steps: str) -> Callable[[Wildcards], list[str]]:
        """Return the function from wildcards to :meth:`files_read`.

        Args:
            rule: Rule of the workflow.
            pattern: Name of the job.
            *steps: Steps that make the files.
        """
        return lambda wildcards: self.files_read(rule, pattern.format(**wildcards), *steps)

    def attack_lists(self) -> list[AttackList]:
        """List the different lists of attacks of the runs that have a job of their own, each with its runs."""
        attacked = self._results.table.attacks
        runs: dict[tuple[tuple[str, ...], bool], list[str]] = {}
        for (rule, slug), jobs in self._jobs.items():
            if rule == "attack" and slug in attacked:
                attacks = tuple(job.settings["attack"] for job in jobs if job.step == "attack")
                runs.setdefault((attacks, len(attacks) < len(jobs)), []).append(slug)
        every = {slug for slug, attacks in attacked.items() if attacks}
        others = {alike: every.difference(slugs) for alike, slugs in runs.items()}
        return [
            AttackList(*alike, f"(?={beginnings(slugs, others[alike])}){RUN}" if others[alike] else RUN)
            for alike, slugs in runs.items()
        ]

    def untrained(self) -> list[Untrained]:
        """List the jobs that attack several untrained networks."""
        return [
            Untrained(name, max(self._priority(job.settings["slug"]) for job in jobs) + 1)
            for (rule, name), jobs in self._jobs.items()
            if rule == "attack" and name not in self._results.table.attacks
        ]

    def training_priority(self, wildcards: Wildcards) -> int:
        """Return the priority of a training: what comes first in the configuration is to be finished first.

        Args:
            wildcards: Those of a run.
        """
        return self._priority(wildcards["run"])

    def _priority(self, run: str) -> int:
        """Return the priority of the training of a run."""
        return -2 * self._positions.get(run, 0)

    def attack_priority(self, wildcards: Wildcards) -> int:
        """Return the priority of the attacks on a run, which come right after its training.

        Args:
            wildcards: Those of a run.
        """
        return self.training_priority(wildcards) + 1

    def memory(self, *steps: str) -> Callable[..., int]:
        """Return the function from wildcards and attempt to MiB of memory: as much again at each retry.

        Args:
            *steps: Sections of ``resources`` of what the job does, one after another.
        """
        most = max(getattr(self._results.table.config.resources, step).mem_mb for step in steps)
        return lambda wildcards, attempt: most * attempt

    def minutes(self, *steps: str) -> Callable[..., int]:
        """Return the function from wildcards and attempt to minutes: as many again at each retry.

        Args:
            *steps: Sections of ``resources`` of what the job does, one after another.
        """
        total = sum(getattr(self._results.table.config.resources, step).runtime for step in steps)
        return lambda wildcards, attempt: total * attempt

    def labels(self, key: str) -> Callable[[Wildcards], dict[str, Any]]:
        """Return the function from wildcards to what Snakemake's report says about a figure: titles may hold braces.

        Args:
            key: ``paper/id`` of the figure.
        """
        figure = self._results.table.figures[key]
        caption = self._results.table.caption(key)
        return lambda wildcards: {"figure": figure.id, "shows": figure.title, "caption": caption}


def beginnings(names: Iterable[str], others: Iterable[str]) -> str:
    r"""Write a regular expression of beginnings of paths that some runs have, and others have not.

    They are as short as they can be: Snakemake reads the expression for each output of each job, so that one with the
    names of all runs takes a time that grows with the square of their number.

    Args:
        names: Names of runs.
        others: Names of other runs.

    Example:
        >>> beginnings(["digits/mlp/none/n4-b2", "digits/mlp/white-1/n4-b2"], ["digits/mlp/none/n0-b2"])
        'digits/mlp/(?:none/n4\\-|white\\-)'
    """
    return _beginnings([_PARTS.findall(name) for name in names], [_PARTS.findall(name) for name in others])


def _beginnings(names: list[list[str]], others: list[list[str]]) -> str:
    """Write the expression for names in parts."""
    if not others:
        return ""
    rest: dict[str, tuple[list[list[str]], list[list[str]]]] = {name[0]: ([], []) for name in names}
    for place, each in enumerate((names, others)):
        for first, *after in each:
            if first in rest:
                rest[first][place].append(after)
    written = [
        re.escape(first) + (_beginnings(*both) if first[-1] in "/-" else "(?![0-9-])")
        for first, both in rest.items()
    ]
    return written[0] if len(written) == 1 else f"(?:{'|'.join(written)})"
