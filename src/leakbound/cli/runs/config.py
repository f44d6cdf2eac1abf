"""Command: check a configuration, or write the generated default and its schema."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from leakbound import storage


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


def keep_generated(pages: Iterable[tuple[Path, str]], check: bool, command: str) -> None:
    """Write generated pages that differ from the text they should have; with ``check`` only name them.

    Args:
        pages: Each file and its text.
        check: Whether files are left as they are.
        command: What brings them up to date, for the message.

    Raises:
        typer.Exit: With code 1, after the message, if ``check`` finds a page out of date.
    """
    stale = [
        (path, text) for path, text in pages if not path.is_file() or path.read_text(encoding="utf-8") != text
    ]
    if check and stale:
        sys.stderr.write(f"out of date: {', '.join(str(path) for path, _ in stale)}; run `{command}`\n")
        raise typer.Exit(1)
    for path, text in stale:
        with storage.atomic(path, sealed=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
