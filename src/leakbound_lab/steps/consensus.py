"""Tables of private average consensus."""

from collections.abc import Iterator
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.consensus import ConsensusConfig
from leakbound_lab.config.settings import Name
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.steps.job_settings import SeededSettings

_SIMULATED = "averaging"  # the only table whose rows contain noise


class ConsensusSettings(SeededSettings):
    """A table of private average consensus."""

    table: Name
    config: ConsensusConfig


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    config = table.config
    for name, section in table.section("consensus"):
        settings = {"table": name, "config": section, "seed": config.seed}
        if name == _SIMULATED:
            settings["privacy_noise"] = config.privacy_noise
        yield new_job(config, "consensus", name, settings, purpose="consensus")


def consensus(settings: ConsensusSettings, rows: Path) -> None:
    """Compute one table of private average consensus: simulated averaging, or the levels of observers."""
    from leakbound_lab.papers.wang2020.simulations import simulation_rows

    storage.write_rows(
        rows, simulation_rows(settings.table, settings.config, settings.seed, settings.privacy_noise)
    )


STEP = Step(ConsensusSettings, consensus, jobs, final=True)
