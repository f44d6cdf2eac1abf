"""Tables of utility against privacy in closed form."""

from collections.abc import Iterator
from pathlib import Path

from leakbound import storage
from leakbound_lab.config.theory import TheoryConfig
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each table."""
    for name, section, plain in table.section("theory"):
        settings = {"table": name, "config": plain}
        arguments = {"table": name, "config": section, "seed": table.config.seed}
        yield new_job(table.config, "theory", name, settings, arguments=arguments, purpose="theory")


def theory(table: str, config: TheoryConfig, seed: int, rows: Path) -> None:
    """Compute one table of utility against privacy: a case of Zeng et al. 2022, or the general problem."""
    from leakbound_lab.papers.zeng2022.case_tables import theory_rows

    storage.write_rows(rows, theory_rows(table, config, seed))


STEP = Step(theory, jobs, final=True)
