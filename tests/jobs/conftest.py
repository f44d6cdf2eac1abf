"""Real processes for tests of jobs."""

import os
import subprocess
import sys

import pytest


@pytest.fixture
def start():
    """Start Python on some code; all that is started is killed at the end of the test, whatever comes of it."""
    started: list[subprocess.Popen[str]] = []

    def starting(code: str, *words: object, **variables: str) -> subprocess.Popen[str]:
        command, pipe = [sys.executable, "-c", code, *map(str, words)], subprocess.PIPE
        started.append(subprocess.Popen(command, env=os.environ | variables, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield starting
    for process in started:
        process.kill()
        process.communicate()
