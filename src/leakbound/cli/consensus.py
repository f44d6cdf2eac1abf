"""Command: tables of private average consensus."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, read_settings


def consensus(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Compute one table of private average consensus: simulated averaging, or what observers learn."""
    from leakbound.config.consensus import ConsensusConfig
    from leakbound.consensus.tables import rows_of

    given = read_settings(settings)
    config, origin = ConsensusConfig.model_validate(given["config"]), given.get("privacy_noise", "seeded")
    storage.write_rows(rows, rows_of(given["part"], config, given["seed"], origin))
