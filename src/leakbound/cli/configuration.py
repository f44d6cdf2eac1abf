"""Command: check a configuration, or write the generated default and its schema."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from leakbound.cli.generated import keep_generated


def config(
    configfile: Annotated[Path | None, typer.Option(help="Configuration to check and show in full.")] = None,
    check: Annotated[bool, typer.Option(help="Only say whether the generated files are up to date.")] = False,
    folder: Annotated[Path, typer.Option(help="Where the generated files lie.")] = Path("config"),
) -> None:
    """Check a configuration, or write the default one and the JSON schema for editors."""
    from leakbound.config import reading

    if configfile is not None:
        sys.stdout.write(reading.as_yaml(reading.load(configfile)))
        return
    pages = {"config.yaml": reading.as_yaml(reading.quick()), "schema.json": reading.schema()}
    keep_generated(((folder / name, text) for name, text in pages.items()), check, "leakbound config")
