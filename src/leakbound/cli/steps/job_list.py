"""All steps, and all jobs of a configuration."""

import importlib

from leakbound.config.reading import load_catalogue
from leakbound.config.whole import Config
from leakbound.jobs.job import JobList, RunTable, Step
from leakbound.jobs.paths import OUTPUTS


def all_steps() -> list[Step]:
    """List the steps in the order of the chain. The file of each has its name."""
    return [importlib.import_module(f"leakbound.cli.steps.{name}").STEP for name in OUTPUTS]


def job_list(config: Config) -> JobList:
    """List all jobs of a configuration, with its catalogue of figures."""
    return JobList(RunTable(config, load_catalogue(config.catalogue, config)), all_steps())
