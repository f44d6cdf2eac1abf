"""A tracking server, or whoever has taken its port, is told of runs and must not say where files of its clients go."""

import json
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bad_server import Answer, answering
from leakbound_lab.tracking.run_records import RunRecord
from leakbound_lab.tracking.sending import Outcome, log_run


class Evil:
    """MLflow's protocol as far as a job needs it, with a place for artifacts that the server chooses."""

    def __init__(self) -> None:
        self.place = self.refusal = ""
        self.run: dict[str, Any] | None = None
        self.elsewhere: dict[str, str] = {}
        """End of a path to the address that its requests are redirected to."""
        self.files: list[str] = []
        self.parts: dict[str, Any] = {}
        """Answer to who asks where the parts of a large file go."""

    def answer(self, request: BaseHTTPRequestHandler, content: bytes) -> Answer:
        path = request.path.partition("?")[0]
        for end, address in self.elsewhere.items():
            if path.endswith(end):
                return 307, b"", {"Location": f"{address}{request.path}"}
        if request.command == "PUT":
            self.files.append(request.path)
            return 200, b"{}"
        if self.refusal:
            return 400, json.dumps({"error_code": "INVALID_PARAMETER_VALUE", "message": self.refusal}).encode()
        return 200, json.dumps(self._found(path, json.loads(content or b"{}"))).encode()

    def _found(self, path: str, sent: dict[str, Any]) -> dict[str, Any]:
        if path.endswith("/mpu/create/1"):
            return self.parts
        called = path.partition("/mlflow/")[2]
        experiment = {"experiment_id": "1", "name": "e", "lifecycle_stage": "active", "artifact_location": self.place}
        if called == "runs/create":
            info = {"run_id": (name := uuid.uuid4().hex), "run_uuid": name, "experiment_id": "1", "status": "RUNNING"}
            info |= {"artifact_uri": self.place, "lifecycle_stage": "active", "user_id": "x"}
            self.run = {"info": info, "data": {"tags": sent.get("tags", [])}}
        if called == "runs/update" and self.run:
            self.run["info"]["status"] = sent["status"]
        if called == "runs/search":
            return {"runs": [self.run] if self.run else []}
        if called == "experiments/search":
            return {"experiments": [experiment]}
        return {"experiment": experiment} if called.startswith("experiments/get") else {"run": self.run}


@pytest.fixture
def evil() -> Iterator[Evil]:
    """Such a server, with its address."""
    server = Evil()
    with answering(server.answer) as server.uri:
        yield server


@pytest.fixture
def other() -> Iterator[tuple[str, list[str]]]:
    """Address of another server, and what reaches it, with the password that comes along."""
    reached: list[str] = []

    def answer(request: BaseHTTPRequestHandler, content: bytes) -> Answer:
        reached.append(f"{request.command} {request.path} {request.headers.get('Authorization')} {content!r}")
        return 200, b"{}"

    with answering(answer) as uri:
        yield f"localhost:{uri.rpartition(':')[2]}", reached


def logged(uri: str, folder: Path, monkeypatch) -> Outcome:
    """Log a run with one file, as a user who has a password there."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "alice")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2-hunter2")
    (folder / "provenance.json").write_text("what a job logs")
    record = RunRecord("run", "e", "a run", 0, 1, artifacts=((folder / "provenance.json", ""),))
    return log_run(record, uri, folder / "marker.json")


@pytest.mark.parametrize("form", ["mlflow-artifacts://{}/1", "mlflow-artifacts:/\t/{}/1", "MLFLOW-artifacts://a@{}/1"])
def test_server_sends_neither_files_nor_the_password_to_another_server(evil, other, tmp_path, monkeypatch, form):
    evil.place = form.format(other[0])
    outcome = logged(evil.uri, tmp_path, monkeypatch)
    assert other[1] == []
    assert (outcome.status, "must serve them itself" in outcome.reason) == ("pending", True)


@pytest.mark.parametrize("end", ["/provenance.json", "/experiments/get-by-name", "/runs/create"])
def test_requests_are_not_redirected_and_what_was_not_taken_stays_pending(evil, other, tmp_path, monkeypatch, end):
    evil.place = "mlflow-artifacts:/1"
    evil.elsewhere = {end: f"http://{other[0]}"}
    outcome = logged(evil.uri, tmp_path, monkeypatch)
    assert other[1] == []
    assert (outcome.status, "307" in outcome.reason) == ("pending", True)


@pytest.mark.parametrize("form", ["mlflow-artifacts:/1", "mlflow-artifacts://{}/1"])
def test_file_goes_to_the_server_that_serves_it_itself(evil, tmp_path, monkeypatch, form):
    evil.place = form.format(evil.uri.partition("//")[2])
    assert logged(evil.uri, tmp_path, monkeypatch).status == "stored"
    assert evil.files == ["/api/2.0/mlflow-artifacts/artifacts/1/provenance.json"]


@pytest.mark.parametrize("place", ["mlflow-artifacts://[x/1", "\x1b[31m", ""])
def test_place_that_is_none_is_a_refusal_and_no_defect(evil, tmp_path, monkeypatch, place):
    evil.place = place
    outcome = logged(evil.uri, tmp_path, monkeypatch)
    assert (outcome.status, outcome.reason.isprintable()) == ("pending", True)


def test_words_of_a_server_reach_a_terminal_without_the_codes_that_rule_it(evil, tmp_path, monkeypatch):
    evil.refusal = "\x1b]0;owned\x07 \x9b2J no room"
    reason = logged(evil.uri, tmp_path, monkeypatch).reason
    assert reason.isprintable()
    assert "\\x1b]0;owned" in reason


def test_large_files_do_not_go_where_the_server_says_either(evil, other, tmp_path, monkeypatch):
    """MLflow sends files beyond a size in parts, to addresses that the server makes up."""
    monkeypatch.setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true")
    monkeypatch.setenv("MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE", "1")
    evil.place = "mlflow-artifacts:/1"
    part = {"url": f"http://{other[0]}/part", "part_number": 1, "headers": {}}
    evil.parts = {"upload_id": "1", "credentials": [part]}
    logged(evil.uri, tmp_path, monkeypatch)
    assert other[1] == []


@pytest.mark.parametrize("form", ["{}", "file://{}", "FILE:{}", "runs:/{}"])
def test_server_does_not_choose_a_folder_of_the_clients_machine(evil, tmp_path, monkeypatch, form):
    home = tmp_path / "home"
    home.mkdir()
    (home / "provenance.json").write_text("what was there")
    evil.place = form.format(home)
    outcome = logged(evil.uri, tmp_path, monkeypatch)
    assert {path.name: path.read_text() for path in home.iterdir()} == {"provenance.json": "what was there"}
    assert (outcome.status, "on this machine" in outcome.reason) == ("pending", True)
