"""Tables of private average consensus."""

from collections.abc import Iterator
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.consensus import ConsensusConfig
from leakbound_lab.config.settings import PrivacyNoise
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job

_SIMULATED = "averaging"  # the only table whose rows contain noise


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    config = table.config
    for name, section, plain in table.section("consensus"):
        settings = {"table": name, "config": plain}
        arguments = {"table": name, "config": section, "seed": config.seed}
        if name == _SIMULATED:
            arguments["privacy_noise"] = config.privacy_noise
        yield new_job(config, "consensus", name, settings, arguments=arguments, purpose="consensus")


def consensus(
    table: str, config: ConsensusConfig, seed: int, rows: Path, privacy_noise: PrivacyNoise = "seeded"
) -> None:
    """Compute one table of private average consensus: simulated averaging, or the levels of observers."""
    from leakbound_lab.papers.wang2020.simulations import simulation_rows

    storage.write_rows(rows, simulation_rows(table, config, seed, privacy_noise))


STEP = Step(consensus, jobs, final=True)
