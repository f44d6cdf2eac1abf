"""Attempts to reach a store that fails: one if it does not answer at all, more if it has shown that it lives."""

import os
import time

import pytest
from bad_server import DROPPED, HANGS

from leakbound.tracking import Point, RunRecord, log_run
from leakbound.tracking.store import patient

RECORD = RunRecord("run", "experiment", "a run", 0, 1, metrics=(Point("loss", 0, 1, 0.5),))
FIRST, SECOND = "experiments/search", "experiments/get-by-name"


@pytest.mark.parametrize("fault", [DROPPED, 401, 500, 503])
def test_server_that_fails_at_once_is_asked_once(bad_server, tmp_path, fault):
    bad_server.spoil = lambda path: fault
    assert log_run(RECORD, bad_server.uri, tmp_path / "run.json").status == "pending"
    assert len(bad_server.paths) == 1


def test_server_that_hangs_is_asked_once(bad_server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    bad_server.spoil = lambda path: HANGS
    assert log_run(RECORD, bad_server.uri, tmp_path / "run.json").status == "pending"
    assert len(bad_server.paths) == 1


@pytest.mark.parametrize("fault", [DROPPED, 500])
def test_server_that_has_answered_is_tried_again_with_pauses_and_then_given_up(bad_server, tmp_path, fault):
    bad_server.spoil = lambda path: None if path.endswith(FIRST) else fault
    began = time.monotonic()
    assert log_run(RECORD, bad_server.uri, tmp_path / "run.json").status == "pending"
    assert time.monotonic() - began >= 2.5
    assert (bad_server.count(FIRST), bad_server.count(SECOND)) == (3, 3)


@pytest.mark.parametrize("fault", [401, 403])
def test_refusal_of_the_user_is_not_tried_again(bad_server, tmp_path, fault):
    bad_server.spoil = lambda path: None if path.endswith(FIRST) else fault
    assert log_run(RECORD, bad_server.uri, tmp_path / "run.json").status == "pending"
    assert bad_server.count(SECOND) == 1


def test_answer_that_was_waited_for_in_vain_is_not_waited_for_again(bad_server, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    bad_server.spoil = lambda path: None if path.endswith(FIRST) else HANGS
    assert log_run(RECORD, bad_server.uri, tmp_path / "run.json").status == "pending"
    assert bad_server.count(SECOND) == 1


@pytest.mark.parametrize(("given", "waiting"), [("15", "60"), ("7", "7")])
def test_server_that_lives_may_take_longer_unless_the_user_has_said_how_long(monkeypatch, given, waiting):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", given)
    with patient():
        assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == waiting
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == given
