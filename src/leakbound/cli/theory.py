"""Command: tables of utility against privacy in closed form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage
from leakbound.cli.files import SettingsOption, read_settings


def theory(
    settings: SettingsOption,
    rows: Annotated[Path, typer.Option(help="Tidy rows, Parquet.")],
) -> None:
    """Compute one table of utility against privacy: a case of Zeng et al. 2022, or the general problem."""
    from leakbound.config import TheoryConfig
    from leakbound.theory import theory_rows

    given = read_settings(settings)
    storage.write_rows(rows, theory_rows(given["part"], TheoryConfig.model_validate(given["config"]), given["seed"]))
