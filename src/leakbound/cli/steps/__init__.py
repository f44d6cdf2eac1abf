"""Steps of the chain: one file for each kind of job, with its settings, its jobs and its command."""

import importlib

from leakbound.jobs.job import Step
from leakbound.jobs.paths import OUTPUTS


def all_steps() -> list[Step]:
    """Steps in the order of the chain; the file of each has its name."""
    return [importlib.import_module(f"{__name__}.{name}").STEP for name in OUTPUTS]
