"""Results that one job of Snakemake makes together: the rule, and what its wildcards stand for."""

from functools import cache

from leakbound.jobs.job import Job, JobList
from leakbound.storage.fingerprint import code_fingerprint

ANEW = "LEAKBOUND_ANEW"  # set if results are made again even if nothing behind them has changed
CONFIGURATION = "LEAKBOUND_CONFIGURATION"  # as JSON, for jobs that make several results
_RULES = {"references": "attack", "plot": "figures"}
_WHOLE = {
    *("theory", "consensus", "federated", "illustrate", "measure", "tabulate", "claims"),
    *("log", "log_figures", "report"),
}
WITHOUT_FIGURES = {"covariance", "attack"}
"""Rules whose results do not depend on the catalogue of figures, which takes half a second to read."""
_DECLARED = {"attack": "attacks/{of}.json", "figures": "figures/{of}", "log": "tracking.json"}
"""Rule whose results are too various to be declared one by one, to what it declares in their place."""


def rule_of(job: Job) -> tuple[str, str]:
    """Return the rule that makes a result, and the dataset, run, paper or name that its wildcards stand for.

    Args:
        job: Result of a configuration.
    """
    rule = _RULES.get(job.step, job.step)
    if rule in _WHOLE:
        return rule, ""
    if rule in ("covariance", "figures"):
        return rule, job.name.partition("/")[0]
    return rule, job.name.rpartition("/")[0] if job.step == "attack" else job.name


@cache
def made_together(made: JobList) -> dict[tuple[str, str], list[Job]]:
    """Return the results of each job of Snakemake, in the order of the chain.

    Args:
        made: Results of a configuration.
    """
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in made:
        groups.setdefault(rule_of(job), []).append(job)
    return groups


def snakemake_target(job: Job, path: str) -> str:
    """Return what Snakemake is asked for to make a file of a result.

    Args:
        job: Result of a configuration.
        path: One of its files.
    """
    rule, of = rule_of(job)
    return f"{job.root}/{_DECLARED[rule].format(of=of)}" if rule in _DECLARED else path


def code_of(job: Job) -> str:
    """Return the fingerprint of the code behind a result.

    Args:
        job: Result of a configuration.
    """
    return code_fingerprint(f"leakbound.cli.steps.{job.step}", *job.modules)
