"""Command: check a configuration, or write the generated default and its schema."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage


def config(
    configfile: Annotated[Path | None, typer.Option(help="Configuration to check and show in full.")] = None,
    check: Annotated[bool, typer.Option(help="Only check that the generated files are up to date.")] = False,
    folder: Annotated[Path, typer.Option(help="Project with the generated files.")] = Path("."),
) -> None:
    """Check a configuration, or write the default one and the JSON schema for editors.

    Example: leakbound config --configfile config/small.yaml

    Example: leakbound config --check
    """
    from leakbound_lab.config import reading
    from leakbound_lab.steps.job_list import try_networks

    if configfile is not None:
        checked = reading.load(configfile)
        try_networks(checked, str(configfile))
        sys.stdout.write(reading.as_yaml(checked))
        return
    pages = {
        "config/config.yaml": reading.as_yaml(reading.quick()),
        "workflow/schemas/config.schema.json": reading.schema(),
    }
    keep_generated(((folder / name, text) for name, text in pages.items()), check, "leakbound config")


def keep_generated(pages: Iterable[tuple[Path, str]], check: bool, command: str) -> None:
    """Write generated pages whose files are out of date. With ``check``, only name these files.

    Args:
        pages: Each file and its text.
        check: True to leave files unchanged.
        command: Command that brings the files up to date, for the message.

    Raises:
        typer.Exit: With code 1, after the message, if ``check`` finds a file out of date.
    """
    stale = [
        (path, text) for path, text in pages if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if check and stale:
        sys.stderr.write(f"out of date: {', '.join(str(path) for path, _ in stale)}; run `{command}`\n")
        raise typer.Exit(1)
    for path, text in stale:
        storage.write_text(path, text, sealed=False)
