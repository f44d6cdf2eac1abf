"""Files of the repository that are generated: brought up to date, or found out of date."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import typer

from leakbound import storage


def keep_generated(pages: Iterable[tuple[Path, str]], check: bool, command: str) -> None:
    """Write generated pages that differ from the text they should have; with ``check`` only name them.

    Args:
        pages: Each file and its text.
        check: Whether files are left as they are.
        command: What brings them up to date, for the message.

    Raises:
        typer.Exit: With code 1, after the message, if ``check`` finds a page out of date.
    """
    stale = [(path, text) for path, text in pages if not path.is_file() or path.read_text(encoding="utf-8") != text]
    if check and stale:
        sys.stderr.write(f"out of date: {', '.join(str(path) for path, _ in stale)}; run `{command}`\n")
        raise typer.Exit(1)
    for path, text in stale:
        with storage.atomic(path, sealed=False) as temporary:
            temporary.write_text(text, encoding="utf-8")
