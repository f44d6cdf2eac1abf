"""Tables of utility against privacy in closed form."""

from collections.abc import Iterator
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.settings import Name, Seed
from leakbound_lab.config.theory import TheoryConfig
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.steps.job_settings import JobSettings


class TheorySettings(JobSettings):
    """A table of closed forms."""

    table: Name
    config: TheoryConfig
    seed: Seed


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    for name, section in table.section("theory"):
        yield new_job(
            table.config,
            "theory",
            name,
            {"table": name, "config": section, "seed": table.config.seed},
            purpose="theory",
        )


def theory(settings: TheorySettings, rows: Path) -> None:
    """Compute one table of utility against privacy: a case of Zeng et al. 2022, or the general problem."""
    from leakbound_lab.papers.zeng2022.case_tables import theory_rows

    storage.write_rows(rows, theory_rows(settings.table, settings.config, settings.seed))


STEP = Step(TheorySettings, theory, jobs, final=True)
