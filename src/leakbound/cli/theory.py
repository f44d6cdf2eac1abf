"""Command: tables of utility against privacy in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, check_outputs, read_settings
from leakbound.cli.jobs import TheoryJob


def theory(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Compute one table of utility against privacy: a case of Zeng et al. 2022, or the general problem."""
    from leakbound.theory.tables import theory_rows

    check_outputs(rows)
    job = read_settings(settings, TheoryJob)
    storage.write_rows(rows, theory_rows(job.part, job.config, job.seed))
