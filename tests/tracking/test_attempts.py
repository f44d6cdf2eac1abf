"""Attempts to reach a store that fails: one, which leaves the record pending."""

import json

import pytest
from bad_server import DROPPED, HANGS

from leakbound.tracking.run_records import Point, RunRecord
from leakbound.tracking.sending import log_run

RECORD = RunRecord("run", "experiment", "a run", 0, 1, metrics=(Point("loss", 0, 1, 0.5),))


@pytest.mark.parametrize("fault", [DROPPED, HANGS, 401, 500, 503])
def test_server_that_fails_is_asked_once(bad_server, tmp_path, monkeypatch, fault):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    bad_server.spoil = lambda path: fault
    outcome = log_run(RECORD, bad_server.uri, tmp_path / "run.json")
    assert (outcome.status, bool(outcome.reason)) == ("pending", True)
    assert len(bad_server.paths) == 1


def test_file_that_is_missing_leaves_the_run_pending_with_its_name(tmp_path):
    record = RunRecord("run", "experiment", "a run", 0, 1, artifacts=((tmp_path / "gone.json", ""),))
    outcome = log_run(record, f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "run.json")
    assert outcome.status == "pending"
    assert "gone.json" in outcome.reason
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "pending"
