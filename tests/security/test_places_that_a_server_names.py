"""A tracking server, or whoever has taken its port, is told of runs and must not say where files of its clients go."""

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leakbound.tracking.run_records import RunRecord
from leakbound.tracking.sending import Outcome, log_run


class Evil(BaseHTTPRequestHandler):
    """MLflow's protocol as far as a job needs it, with a place for artifacts that the server chooses."""

    place: ClassVar[str] = ""
    run: ClassVar[dict[str, Any] | None] = None
    elsewhere: ClassVar[dict[str, str]] = {}
    """End of a path to the address that its requests are redirected to."""
    files: ClassVar[list[str]] = []
    parts: ClassVar[dict[str, Any]] = {}
    """Answer to who asks where the parts of a large file go."""
    refusal: ClassVar[str] = ""
    """Words of a refusal."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for end, address in self.elsewhere.items():
            if self.path.partition("?")[0].endswith(end):
                self.send_response(307)
                self.send_header("Location", f"{address}{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
        if self.command == "PUT":
            self.files.append(self.path)
        sent = json.loads(body if body and self.command != "PUT" else b"{}")
        called = self.path.partition("/mlflow/")[2].partition("?")[0]
        experiment = {"experiment_id": "1", "name": "e", "lifecycle_stage": "active", "artifact_location": self.place}
        found: dict[str, Any] = {}
        if called == "runs/create":
            info = {"run_id": (name := uuid.uuid4().hex), "run_uuid": name, "experiment_id": "1", "status": "RUNNING"}
            info |= {"artifact_uri": self.place, "lifecycle_stage": "active", "user_id": "x"}
            type(self).run = {"info": info, "data": {"tags": sent.get("tags", [])}}
        if called == "runs/update" and self.run:
            self.run["info"]["status"] = sent["status"]
        if called in ("runs/create", "runs/get", "runs/update"):
            found = {"run": self.run}
        elif called == "runs/search":
            found = {"runs": [self.run] if self.run else []}
        elif called == "experiments/search":
            found = {"experiments": [experiment]}
        elif called.startswith("experiments/get"):
            found = {"experiment": experiment}
        if self.path.partition("?")[0].endswith("/mpu/create/1"):
            found = self.parts
        if self.refusal:
            found = {"error_code": "INVALID_PARAMETER_VALUE", "message": self.refusal}
        content = json.dumps(found).encode()
        self.send_response(400 if self.refusal else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815 - names of the protocol

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def evil(monkeypatch) -> Iterator[str]:
    """Address of such a server."""
    for name, value in (("run", None), ("elsewhere", {}), ("files", [])):
        monkeypatch.setattr(Evil, name, value)
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def other(monkeypatch) -> Iterator[tuple[str, list[str]]]:
    """Address of another server, and what reaches it, with the password that comes along."""
    reached: list[str] = []

    class Other(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            reached.append(f"{self.command} {self.path} {self.headers.get('Authorization')} {body!r}")
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_GET = do_POST = do_PATCH = do_PUT = _answer  # noqa: N815

        def log_message(self, *words: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"localhost:{server.server_address[1]}", reached
        server.shutdown()


def logged(uri: str, folder: Path, monkeypatch) -> Outcome:
    """Log a run with one file, as a user who has a password there."""
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "alice")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2-hunter2")
    (folder / "provenance.json").write_text("what a job logs")
    record = RunRecord("run", "e", "a run", 0, 1, artifacts=((folder / "provenance.json", ""),))
    return log_run(record, uri, folder / "marker.json")


@pytest.mark.parametrize("form", ["mlflow-artifacts://{}/1", "mlflow-artifacts:/\t/{}/1", "MLFLOW-artifacts://a@{}/1"])
def test_server_sends_neither_files_nor_the_password_to_another_server(evil, other, tmp_path, monkeypatch, form):
    monkeypatch.setattr(Evil, "place", form.format(other[0]))
    outcome = logged(evil, tmp_path, monkeypatch)
    assert other[1] == []
    assert (outcome.status, "must serve them itself" in outcome.reason) == ("pending", True)


@pytest.mark.parametrize("end", ["/provenance.json", "/experiments/get-by-name", "/runs/create"])
def test_requests_are_not_redirected_and_what_was_not_taken_stays_pending(evil, other, tmp_path, monkeypatch, end):
    monkeypatch.setattr(Evil, "place", "mlflow-artifacts:/1")
    monkeypatch.setattr(Evil, "elsewhere", {end: f"http://{other[0]}"})
    outcome = logged(evil, tmp_path, monkeypatch)
    assert other[1] == []
    assert (outcome.status, "307" in outcome.reason) == ("pending", True)


@pytest.mark.parametrize("form", ["mlflow-artifacts:/1", "mlflow-artifacts://{}/1"])
def test_file_goes_to_the_server_that_serves_it_itself(evil, tmp_path, monkeypatch, form):
    monkeypatch.setattr(Evil, "place", form.format(evil.partition("//")[2]))
    assert logged(evil, tmp_path, monkeypatch).status == "stored"
    assert Evil.files == ["/api/2.0/mlflow-artifacts/artifacts/1/provenance.json"]


@pytest.mark.parametrize("place", ["mlflow-artifacts://[x/1", "\x1b[31m", ""])
def test_place_that_is_none_is_a_refusal_and_no_defect(evil, tmp_path, monkeypatch, place):
    monkeypatch.setattr(Evil, "place", place)
    outcome = logged(evil, tmp_path, monkeypatch)
    assert (outcome.status, outcome.reason.isprintable()) == ("pending", True)


def test_words_of_a_server_reach_a_terminal_without_the_codes_that_rule_it(evil, tmp_path, monkeypatch):
    monkeypatch.setattr(Evil, "refusal", "\x1b]0;owned\x07 \x9b2J no room")
    reason = logged(evil, tmp_path, monkeypatch).reason
    assert reason.isprintable()
    assert "\\x1b]0;owned" in reason


def test_large_files_do_not_go_where_the_server_says_either(evil, other, tmp_path, monkeypatch):
    """MLflow sends files beyond a size in parts, to addresses that the server makes up."""
    monkeypatch.setenv("MLFLOW_ENABLE_PROXY_MULTIPART_UPLOAD", "true")
    monkeypatch.setenv("MLFLOW_MULTIPART_UPLOAD_MINIMUM_FILE_SIZE", "1")
    monkeypatch.setattr(Evil, "place", "mlflow-artifacts:/1")
    part = {"url": f"http://{other[0]}/part", "part_number": 1, "headers": {}}
    monkeypatch.setattr(Evil, "parts", {"upload_id": "1", "credentials": [part]})
    logged(evil, tmp_path, monkeypatch)
    assert other[1] == []


@pytest.mark.parametrize("form", ["{}", "file://{}", "FILE:{}", "runs:/{}"])
def test_server_does_not_choose_a_folder_of_the_clients_machine(evil, tmp_path, monkeypatch, form):
    home, sent = tmp_path / "home", tmp_path / "provenance.json"
    home.mkdir()
    (home / sent.name).write_text("what was there")
    sent.write_text("what a job logs")
    monkeypatch.setattr(Evil, "place", form.format(home))
    record = RunRecord("run", "e", "a run", 0, 1, artifacts=((sent, ""),))
    outcome = log_run(record, evil, tmp_path / "marker.json")
    assert (home / sent.name).read_text() == "what was there"
    assert (outcome.status, sorted(path.name for path in Path(home).iterdir())) == ("pending", [sent.name])
    assert "on this machine" in outcome.reason
