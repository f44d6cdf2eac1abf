"""A run of `make test-shapes` that leaves a function unchecked fails."""

from types import SimpleNamespace

import numpy as np
import pytest
from jaxtyping import Float, jaxtyped

import checked_functions
from checked_functions import PART, EveryFunction, checked


def finished(plugin, **config):
    """A run in which all tests have passed, as the plugin leaves it."""
    manager = SimpleNamespace(hasplugin=lambda name: True)
    options = SimpleNamespace(collectonly=False)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=manager, option=options, **config), exitstatus=0)
    plugin.pytest_sessionfinish(session)
    return session


def test_a_run_fails_until_each_function_with_arrays_has_had_right_arguments_and_a_right_result(monkeypatch):
    for name in ("_all", "_passed", "UNCHECKED"):
        monkeypatch.setattr(checked_functions, name, set())

    def halved(values: Float[np.ndarray, " n"], whole: bool = False) -> Float[np.ndarray, " n"]:
        if whole:
            raise ZeroDivisionError
        return values / 2

    def unseen(count: int) -> int:  # not asked for, as it has no arrays
        return count

    for function in (halved, unseen):
        function.__module__ = "leakbound.channels.made_up"
    halved, unseen = (jaxtyped(function, typechecker=checked) for function in (halved, unseen))
    plugin = EveryFunction()
    assert finished(plugin).exitstatus == pytest.ExitCode.TESTS_FAILED
    names = [f"{part} of leakbound.channels.made_up.{halved.__qualname__}" for part in ("arguments", "result")]
    assert plugin.wrong == [
        f"{name}: checked in no test" for name in names
    ]  # those of a function without arrays are not asked for
    with pytest.raises(TypeError, match="halved"):
        halved(np.zeros((2, 2)))
    with pytest.raises(ZeroDivisionError):
        halved(np.zeros(2), whole=True)
    assert finished(plugin).exitstatus == pytest.ExitCode.TESTS_FAILED
    assert plugin.wrong == [f"{names[1]}: checked in no test"]
    process = finished(EveryFunction(), workeroutput={})  # one of several that run tests
    assert halved(np.ones(2)).tolist() == [0.5, 0.5]
    assert finished(plugin).exitstatus == 0
    assert plugin.wrong == []
    assert process.config.workeroutput[PART] == [names, names[:1]]


def test_what_other_processes_have_seen_counts(monkeypatch):
    for name in ("_all", "_passed", "UNCHECKED"):
        monkeypatch.setattr(checked_functions, name, set())
    plugin = EveryFunction()
    for passed in (["a"], ["b"]):
        plugin.pytest_testnodedown(SimpleNamespace(workeroutput={PART: [["a", "b", "result of c"], passed]}))
    plugin.pytest_testnodedown(SimpleNamespace())  # a process that was killed
    assert finished(plugin).exitstatus == pytest.ExitCode.TESTS_FAILED
    assert plugin.wrong == ["result of c: checked in no test"]


def test_a_function_that_need_not_be_called_is_still_there_and_not_called(monkeypatch):
    monkeypatch.setattr(checked_functions, "UNCHECKED", {"a": "a protocol"})
    monkeypatch.setattr(checked_functions, "_all", {"arguments of a"})
    monkeypatch.setattr(checked_functions, "_passed", set())
    assert finished(EveryFunction()).exitstatus == 0
    checked_functions._passed.add("arguments of a")
    plugin = EveryFunction()
    assert finished(plugin).exitstatus == pytest.ExitCode.TESTS_FAILED
    assert plugin.wrong == ["a: in UNCHECKED, and checked"]
