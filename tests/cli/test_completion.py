"""Completion of the shell: the commands and their options, without what they compute with."""

import subprocess
import sys

from leakbound.cli.command_line import COMMANDS

PROGRAM = """
import os, sys
from leakbound.cli.command_line import main

sys.argv = ["leakbound"]
try:
    main()
finally:
    heavy = {"torch", "pandas", "mlflow", "matplotlib", "sklearn"} & {*sys.modules}
    assert not heavy, heavy
"""


def completed(line: str) -> list[str]:
    """Suggestions of bash after a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_LEAKBOUND_COMPLETE": "complete_bash"}
    script = f"import os; os.environ.update({words!r})\n{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_are_listed_without_loading_torch():
    assert completed("leakbound ") == [*COMMANDS, "step"]
    assert completed("leakbound pu") == ["publish"]


def test_options_are_listed_without_loading_torch():
    assert {"--nats", "--records"} <= {*completed("leakbound risk --")}
