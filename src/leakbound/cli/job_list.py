"""All steps, and all jobs of a configuration."""

import importlib

from leakbound.config.catalogue import Catalogue
from leakbound.config.reading import load_catalogue
from leakbound.config.whole import Config
from leakbound.jobs.job import JobList, Step
from leakbound.jobs.paths import OUTPUTS
from leakbound.jobs.table import RunTable


def all_steps() -> list[Step]:
    """Steps in the order of the chain; the file of each has its name."""
    return [importlib.import_module(f"leakbound.cli.steps.{name}").STEP for name in OUTPUTS]


def job_list(config: Config, catalogue: Catalogue | None = None) -> JobList:
    """All jobs of a configuration, by default with the catalogue of figures that it names."""
    return JobList(RunTable(config, catalogue or load_catalogue(config.catalogue, config)), all_steps())
