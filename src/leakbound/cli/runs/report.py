"""Command: write the page of a finished configuration again."""

from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.job_settings import ConfigOption
from leakbound.cli.steps.report import write_page
from leakbound.config import reading


def write_report(
    configfile: ConfigOption = Path("config/config.yaml"),
    out: Annotated[
        Path | None, typer.Option(help="Page to write. By default report.html in the folder of the results.")
    ] = None,
) -> None:
    """Write one offline page with the figures, verdicts, runs and provenance of a finished configuration.

    Example: leakbound report --configfile config/small.yaml --out small.html
    """
    write_page(reading.load(configfile), out)
