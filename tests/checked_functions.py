"""Type checker of `make test-shapes`, by which that run fails where it has left a function with arrays unchecked.

jaxtyping has it check the arguments of each function of the package, and after the call arguments and result. Functions
that are annotated with arrays, in the rooms that compute with them, must pass both checks at least once. So that
run can leave out tests, those that are marked `no_shapes`, as long as others call what they call. Slow tests are not in
it, but for those marked `shapes`, which are alone in calling something.
"""

import functools
import importlib
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest
from beartype import beartype

ROOMS = tuple(
    [f"leakbound.{room}" for room in ("accounting", "channels")]
    + [f"leakbound_lab.{room}" for room in ("attacks", "models", "papers", "training")]
)
"""Rooms whose tests `make test-shapes` runs."""
_DEMO = "leakbound_lab.attacks.gradient_inversion.demonstration"
UNCHECKED = {
    "leakbound.channels.shapes.Shape.decompose": "a protocol",
    "leakbound_lab.models.classifier.Classifier.features": "abstract",
    f"{_DEMO}.AttackedUploads.__init__": "of `leakbound demo`, whose tests are elsewhere",
    f"{_DEMO}._identified": "of `leakbound demo`",
    f"{_DEMO}.demonstration": "of `leakbound demo`",
}
"""Functions of these rooms that need not be called, and why. One that is checked all the same may not stand here."""
PART = "checks"
"""Name under which a process of pytest-xdist sends what it has seen."""
_FOR_A_MESSAGE = "check_single_arg"  # by which jaxtyping finds the argument that is wrong
_all: set[str] = set()
_passed: set[str] = set()


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments of a function, and note that they were right."""
    check = beartype(function)
    annotations = function.__annotations__
    if function.__name__ == _FOR_A_MESSAGE or not function.__module__.startswith(ROOMS):
        return check
    if "jaxtyping." not in str(inspect.signature(function)):
        return check
    part = "arguments" if annotations.get("return", Any) is Any else "result"
    name = f"{part} of {function.__module__}.{function.__qualname__}"
    _all.add(name)

    @functools.wraps(check)
    def noting(*args: Any, **kwargs: Any) -> Any:
        passed = check(*args, **kwargs)
        _passed.add(name)
        return passed

    return noting


class EveryFunction:
    """Plugin of pytest: a run fails in which all tests passed, but some function has not been checked."""

    def __init__(self) -> None:
        self.wrong: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send what this process has seen, or judge what all have seen."""
        if not session.config.pluginmanager.hasplugin("dsession"):  # the process that only waits for others
            for room in ROOMS:
                for module in pkgutil.walk_packages(importlib.import_module(room).__path__, f"{room}."):
                    importlib.import_module(module.name)
        if (sent := getattr(session.config, "workeroutput", None)) is not None:
            sent[PART] = [sorted(_all), sorted(_passed)]
        elif session.exitstatus == pytest.ExitCode.OK and not session.config.option.collectonly:
            unchecked = {name: name.partition(" of ")[2] for name in sorted(_all - _passed)}
            self.wrong = [
                f"{name}: checked in no test" for name, function in unchecked.items() if function not in UNCHECKED
            ]
            self.wrong += [
                f"{function}: in UNCHECKED, and checked" for function in UNCHECKED if function not in unchecked.values()
            ]
            if self.wrong:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_testnodedown(self, node: Any) -> None:
        """Take what another process has seen."""
        for seen, sent in zip((_all, _passed), getattr(node, "workeroutput", {}).get(PART, ()), strict=False):
            seen.update(sent)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name what was not checked."""
        for line in self.wrong:
            terminalreporter.write_line(f"FAILED {line}")
