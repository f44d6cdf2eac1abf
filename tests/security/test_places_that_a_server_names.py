"""A tracking server, or whoever has taken its port, is told of runs and must not say where files of its clients go."""

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leakbound.tracking import log
from leakbound.tracking.records import Artifact, RunRecord


class Evil(BaseHTTPRequestHandler):
    """MLflow's protocol as far as a job needs it, with a place for artifacts that the server chooses."""

    place: ClassVar[str] = ""
    run: ClassVar[dict[str, Any] | None] = None

    def _answer(self) -> None:
        sent = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
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
        content = json.dumps(found).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = _answer  # noqa: N815 - names of the protocol

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def evil(monkeypatch) -> Iterator[str]:
    """Address of such a server."""
    monkeypatch.setattr(Evil, "run", None)
    with ThreadingHTTPServer(("127.0.0.1", 0), Evil) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("form", ["{}", "file://{}", "FILE:{}", "runs:/{}"])
def test_server_does_not_choose_a_folder_of_the_clients_machine(evil, tmp_path, monkeypatch, form):
    home, sent = tmp_path / "home", tmp_path / "provenance.json"
    home.mkdir()
    (home / sent.name).write_text("what was there")
    sent.write_text("what a job logs")
    monkeypatch.setattr(Evil, "place", form.format(home))
    record = RunRecord("run", "e", "a run", 0, 1, artifacts=(Artifact.of(sent),))
    outcome = log(record, evil, tmp_path / "marker.json")
    assert (home / sent.name).read_text() == "what was there"
    assert (outcome.status, sorted(path.name for path in Path(home).iterdir())) == ("pending", [sent.name])
    assert "on this machine" in outcome.reason
