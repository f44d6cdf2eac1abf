"""Results of a finished configuration, as the commands that show or keep them read them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leakbound import storage
from leakbound.config.reading import load_catalogue
from leakbound.config.whole import Config
from leakbound.jobs.job import JobList
from leakbound.jobs.paths import output
from leakbound.jobs.table import RunTable

if TYPE_CHECKING:
    import pandas as pd


def job_list(config: Config) -> JobList:
    """All jobs of a configuration, with its catalogue of figures."""
    from leakbound.cli.steps import all_steps

    return JobList(RunTable(config, load_catalogue(config.catalogue, config)), all_steps())


def verdicts(root: Path, table: RunTable) -> pd.DataFrame:
    """Verdicts on all claims; an empty table if no figure makes one.

    Raises:
        DamagedFileError: If figures make claims and nobody has judged them yet.
    """
    import pandas as pd

    from leakbound.claims.claims import COLUMNS

    if not table.claiming():
        return pd.DataFrame(columns=list(COLUMNS))
    return storage.read_rows(output(root, "claims", "claims", "out"))
