"""Command: tables of private average consensus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, check_outputs, read_settings
from leakbound.cli.jobs import ConsensusJob


def consensus(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Compute one table of private average consensus: simulated averaging, or what observers learn."""
    from leakbound.consensus.tables import rows_of

    check_outputs(rows)
    job = read_settings(settings, ConsensusJob)
    storage.write_rows(rows, rows_of(job.part, job.config, job.seed, job.privacy_noise))
