"""Attempts to reach a store that fails: one, which leaves the record pending."""

import json
import threading

import pytest

from bad_server import answering
from leakbound.tracking.run_records import Point, RunRecord
from leakbound.tracking.sending import log_run

RECORD = RunRecord("run", "experiment", "a run", 0, 1, metrics=(Point("loss", 0, 1, 0.5),))


@pytest.mark.parametrize("fault", ["cuts the connection", "hangs", 401, 500, 503])
def test_server_that_fails_is_asked_once(tmp_path, monkeypatch, fault):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    asked, closing = [], threading.Event()

    def fail(request, content):
        asked.append(request.path)
        if fault == "hangs":
            closing.wait()
        return (fault, b"failed") if isinstance(fault, int) else None

    with answering(fail) as uri:
        outcome = log_run(RECORD, uri, tmp_path / "run.json")
        closing.set()
    assert (outcome.status, bool(outcome.reason)) == ("pending", True)
    assert len(asked) == 1


def test_file_that_is_missing_leaves_the_run_pending_with_its_name(tmp_path):
    record = RunRecord("run", "experiment", "a run", 0, 1, artifacts=((tmp_path / "gone.json", ""),))
    outcome = log_run(record, f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "run.json")
    assert outcome.status == "pending"
    assert "gone.json" in outcome.reason
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "pending"
