"""Command: check a configuration, or write the generated default and its schema."""

from __future__ import annotations

import sys
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
    from leakbound import presets

    if configfile is not None:
        sys.stdout.write(presets.as_yaml(presets.load(configfile)))
        return
    stale = []
    for name, text in (("config.yaml", presets.as_yaml(presets.quick())), ("schema.json", presets.schema())):
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(str(path))
            if not check:
                with storage.atomic(path) as temporary:
                    temporary.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run `leakbound config`\n")
        raise typer.Exit(1)
