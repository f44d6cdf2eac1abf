"""Call the command line in this process as a shell would, and look at what it says and leaves."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from leakbound import registry, storage
from leakbound.cli.command_line import main

REGISTRIES = [one for one in vars(registry).values() if isinstance(one, registry.Registry)]


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What it said to the user, without frames and line breaks."""
        return " ".join(self.err.translate(str.maketrans("│╭╮╰╯─", "      ")).split())


def called(*words: object, program: Callable[[], object] = main) -> Outcome:
    """Call a program; an error that it does not turn into a message comes through, as its traceback would."""
    out, err = io.StringIO(), io.StringIO()
    names = [dict(one._entries) for one in REGISTRIES]
    code: object = 0
    try:
        with (
            mock.patch.object(sys, "argv", ["leakbound", *map(str, words)]),
            mock.patch.dict(os.environ, COLUMNS="500"),  # a narrow box would break long paths into two
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            program()
    except SystemExit as ended:
        code = ended.code
    finally:
        for one, known in zip(REGISTRIES, names, strict=True):
            one._entries = known
    return Outcome(int(code or 0), out.getvalue(), err.getvalue())


def succeeded(*words: object) -> Outcome:
    """Call a command that does its work."""
    outcome = called(*words)
    assert outcome.code == 0, outcome.err
    return outcome


def refusal(*words: object) -> str:
    """What a command says that cannot do its work."""
    outcome = called(*words)
    assert outcome.code == 2, outcome.out
    assert "Traceback" not in outcome.err
    return outcome.message


def files_in(folder: Path) -> list[str]:
    """All files below a folder, hidden and temporary ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def written_to(folder: Path) -> set[str]:
    """Files below a folder that have been written whole: each has its seal."""
    names = files_in(folder)
    seals = {name for name in names if Path(name).match(".*.sha256")}
    for name in set(names) - seals:
        storage.check(folder / name)
    return set(names) - seals


def assert_refused(outcome: Outcome, folder: Path) -> None:
    """It has ended with a message and has left no file."""
    assert outcome.code != 0
    assert outcome.message
    assert "Traceback" not in outcome.err
    assert len(outcome.err) < 10_000
    assert files_in(folder) == []
