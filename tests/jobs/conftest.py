"""Real processes for tests of jobs."""

import os
import subprocess
import sys

import pytest


class Processes:
    """Processes that are killed at the end of the test, whatever comes of it."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def __call__(self, code: str, *words: object, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, words)],
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def start():
    processes = Processes()
    yield processes
    processes.end()
