"""MLflow's server attacked as another account, a page in a browser and an ordinary user would; and MLflow's own one.

Each attack is carried out on `mlflow server` as MLflow starts it, where it succeeds, and on what leakbound starts.
"""

import base64
import http.client
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from team_server import COMMAND, PATIENCE, free_port, owned, unprivileged

SEARCH = "api/2.0/mlflow/experiments/search?max_results=1"
CREATE = "api/2.0/mlflow/experiments/create"
ASSISTANT = "ajax-api/3.0/mlflow/assistant/config"


class Server:
    """A running server, and how to ask it.

    Args:
        command: Words that start it, but for root's ways to become somebody else.
        home: Its folder.
        port: Where it listens.
        environment: Variables of its own; the attribute `login` is the name and password of requests that give none.
    """

    def __init__(self, command: list[str], home: Path, port: int, **environment: str) -> None:
        self.home, self.port, self.login = home, port, ""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "LEAKBOUND_"))}
        with (home / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*unprivileged(), *command], env=own | environment, cwd=home, stdout=log, stderr=log
            )

    def wait(self) -> None:
        """Wait until it answers."""
        end = time.monotonic() + PATIENCE
        while self._process.poll() is None and time.monotonic() < end:
            with suppress(OSError):
                if self.ask("health")[0] == 200:
                    return
            time.sleep(0.1)
        sys.exit(f"the server does not answer: {(self.home / 'log').read_text(errors='replace')[-2000:]}")

    def ask(
        self, path: str, body: Any = None, method: str | None = None, login: str | None = None, **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        """Status, text and headers of an answer."""
        login = self.login if login is None else login
        given = {"Content-Type": "application/json"} | {name.replace("_", "-"): text for name, text in headers.items()}
        if login:
            given["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, given, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read(), dict(error.headers)

    def status(self, path: str, body: Any = None, method: str | None = None, **given: Any) -> int:
        """Status of an answer."""
        return self.ask(path, body, method, **given)[0]

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()


def configured() -> str:
    """The default configuration, with runs in the folder that a command is started in."""
    text = (Path(__file__).parents[2] / "config" / "config.yaml").read_text(encoding="utf-8")
    return text.replace("sqlite:///results/mlflow.db", "sqlite:///runs.db")


def prepared(folder: Path) -> Path:
    """A folder of the account that serves, with what a neighbour put there: code that gunicorn would run."""
    owned(folder)
    (folder / "gunicorn.conf.py").write_text("import pathlib; pathlib.Path(__file__).with_name('ran').touch()")
    return folder


@pytest.fixture(scope="module", params=["tracking-server", pytest.param("ui", marks=pytest.mark.slow)])
def served(request, tmp_path_factory) -> Iterator[Server]:
    """A server as leakbound starts it, by a user whose environment would weaken it."""
    home, port = prepared(tmp_path_factory.mktemp("served")), free_port()
    (home / "config.yaml").write_text(configured())
    words = {
        "tracking-server": ["--folder", "kept", "--database", f"sqlite:///{home}/runs.db", "--workers", "1"],
        "ui": ["--folder", "kept", "--configfile", "config.yaml"],
    }
    command = [*COMMAND, request.param, *words[request.param], "--port", str(port)]
    server = Server(command, home, port, MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true")
    try:
        server.wait()
        server.login = f"admin:{(home / 'kept' / 'admin-password').read_text()}"
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Iterator[Server]:
    """MLflow's server as MLflow starts it, but for the processes that would carry out jobs."""
    home, port = prepared(tmp_path_factory.mktemp("bare")), free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{home}/runs.db"]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}  # no more processes
    server = Server([*command, "--port", str(port), "--workers", "1"], home, port, **quiet)
    try:
        server.wait()
        yield server
    finally:
        server.stop()


def through_a_link(server: Server, place: Path) -> tuple[int, bytes]:
    """Read a file that only the server's account may, by a place of one's own and a link in it."""
    name = uuid.uuid4().hex
    secret = server.home / f"secret-{name}"
    secret.mkdir(0o700)
    (secret / "id_rsa").write_text("key of the server's owner")
    owned(secret)
    status, text, _ = server.ask(CREATE, {"name": name, "artifact_location": str(place)})
    if status != 200:
        return status, text
    experiment = json.loads(text)["experiment_id"]
    run = json.loads(server.ask("api/2.0/mlflow/runs/create", {"experiment_id": experiment})[1])["run"]["info"]
    linked(place, run["run_id"], secret)
    return server.ask(f"get-artifact?run_id={run['run_id']}&path=id_rsa")[:2]


def linked(place: Path, run: str, secret: Path) -> None:
    """Let the artifacts of a run be a folder elsewhere."""
    (place / run).mkdir(parents=True)
    (place / run / "artifacts").symlink_to(secret)


def test_mlflows_own_server_lets_any_account_in(bare, tmp_path):
    assert bare.status(ASSISTANT) == 200
    tmp_path.chmod(0o755)
    assert through_a_link(bare, tmp_path) == (200, b"key of the server's owner")
    assert bare.status(SEARCH, Host="10.evil.example") == 200
    status, _, headers = bare.ask(SEARCH, Origin="http://localhost:6666")
    assert (status, headers["access-control-allow-credentials"]) == (200, "true")
    assert bare.status("ajax-api/2.0/mlflow/gateway-proxy") == 200


def test_nobody_without_a_password_gets_anything(served):
    for path in (SEARCH, "", "graphql", "get-artifact?run_id=x&path=y", "signup", "static-files/x"):
        for login in ("", "admin:", "admin:password1234", "nobody:x"):
            assert served.ask(path, login=login)[0] in (401, 404), path
    assert served.status("health", login="") == 200
    assert served.status(SEARCH) == 200


def test_no_route_is_served_but_those_of_runs_pages_and_accounts_even_to_the_administrator(served):
    from mlflow.server import app

    from leakbound.tracking.application import _READ, _WRITTEN

    refused = 0
    for rule in app.url_map.iter_rules():
        called = rule.rule.rpartition("/mlflow/")[2]
        if called in _READ | _WRITTEN or "mlflow/" not in rule.rule:
            continue
        for method in rule.methods - {"OPTIONS", "HEAD"}:
            path = rule.rule.lstrip("/").replace("<", "").replace(">", "")
            assert served.status(path, {} if method != "GET" else None, method) == 404, (method, rule.rule)
            refused += 1
    assert refused > 250
    assert served.status(ASSISTANT) == 404


def test_place_of_artifacts_is_not_the_clients_to_choose(served, tmp_path):
    assert through_a_link(served, tmp_path)[0] == 400
    for spelling in ("artifact_location", "artifactLocation"):
        assert served.status(CREATE, {"name": uuid.uuid4().hex, spelling: "s3://elsewhere"}) == 400
        twice = json.dumps(json.dumps({"name": uuid.uuid4().hex, spelling: str(tmp_path)})).encode()
        served.ask(CREATE, twice)
    with sqlite3.connect(served.home / "runs.db") as database:
        places = {place for (place,) in database.execute("SELECT artifact_location FROM experiments")}
    assert all(place.startswith("mlflow-artifacts:") or place.endswith("/0") for place in places), places


def account(server: Server, name: str) -> tuple[str, str]:
    """Login of a new ordinary user, and a run of the user's own."""
    login = f"{name}-{uuid.uuid4().hex}:a password of {name}"
    user, _, password = login.partition(":")
    assert server.status("api/2.0/mlflow/users/create", {"username": user, "password": password}) == 200
    experiment = json.loads(server.ask(CREATE, {"name": user}, login=login)[1])["experiment_id"]
    run = json.loads(server.ask("api/2.0/mlflow/runs/create", {"experiment_id": experiment}, login=login)[1])
    return login, run["run"]["info"]["run_id"]


def test_users_change_their_own_runs_only_by_whatever_names_they_call_them(served):
    (_, victim), (login, own) = account(served, "bob"), account(served, "eve")
    writes: dict[str, dict[str, Any]] = {
        "set-tag": {"key": "k", "value": "evil"},
        "log-batch": {"tags": [{"key": "k", "value": "evil"}]},
        "log-metric": {"key": "m", "value": 1.0, "timestamp": 1},
        "log-parameter": {"key": "p", "value": "evil"},
        "update": {"run_name": "evil"},
        "delete": {},
        "restore": {},
    }
    names = ("run_id", "run_uuid", "runId", "runUuid")
    pairs = [{one: own, other: victim} for one in names for other in names if one != other]
    for route, body in writes.items():
        for named in ({"run_id": victim}, {"runId": victim}, *pairs):
            status = served.status(f"api/2.0/mlflow/runs/{route}", named | body, login=login)
            assert status in (400, 403), (route, named)
        both = {"run_id": own, "run_uuid": own}  # as MLflow's own clients send it
        assert served.status(f"api/2.0/mlflow/runs/{route}", both | body, login=login) == 200
    found = json.loads(served.ask(f"api/2.0/mlflow/runs/get?run_id={victim}")[1])["run"]
    assert found["info"]["lifecycle_stage"] == "active"
    assert set(found["data"]) <= {"tags"}
    assert "evil" not in json.dumps(found)


def test_place_that_an_earlier_server_took_from_a_client_is_not_read(served, tmp_path):
    name = uuid.uuid4().hex
    experiment = json.loads(served.ask(CREATE, {"name": name})[1])["experiment_id"]
    run = json.loads(served.ask("api/2.0/mlflow/runs/create", {"experiment_id": experiment})[1])["run"]["info"]
    secret = served.home / f"planted-{name}"
    secret.mkdir(0o700)
    (secret / "id_rsa").write_text("key")
    owned(secret)
    linked(tmp_path, run["run_id"], secret)
    with sqlite3.connect(served.home / "runs.db") as database:
        place = str(tmp_path / run["run_id"] / "artifacts")
        database.execute("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (place, run["run_id"]))
    assert served.status(f"get-artifact?run_id={run['run_id']}&path=id_rsa") == 403
    listing = {"query": f'query {{ mlflowListArtifacts(input: {{runId: "{run["run_id"]}"}}) {{ files {{ path }} }} }}'}
    for answer in (
        served.ask(f"api/2.0/mlflow/artifacts/list?run_id={run['run_id']}"),
        served.ask("api/2.0/mlflow/artifacts/list", {"run_id": run["run_id"]}, "GET"),
        served.ask("graphql", listing),
    ):
        assert b"id_rsa" not in answer[1], answer


def test_server_answers_to_its_exact_names_only(served):
    own = [f"{name}:{served.port}" for name in ("127.0.0.1", "localhost", "[::1]")]
    assert [served.status(SEARCH, Host=name) for name in own] == [200] * 3
    for name in ("10.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "x", "localhost:1"):
        assert served.status(SEARCH, Host=name) == 403, name


def test_page_from_elsewhere_neither_reads_nor_writes(served):
    own = f"http://127.0.0.1:{served.port}"
    for method, path, body in (("GET", SEARCH, None), ("POST", CREATE, {"name": uuid.uuid4().hex}), ("GET", "", None)):
        assert served.status(path, body, method, Origin="http://localhost:6666") == 403
        assert served.status(path, body, method, Origin="null") == 403
    for kind in ("cross-site", "same-site"):
        assert served.status(SEARCH, Sec_Fetch_Site=kind) == 403
        assert served.status("", Sec_Fetch_Site=kind) == 200  # a link to the pages, as the report has them
    assert served.status(SEARCH, Origin=own, Sec_Fetch_Site="same-origin") == 200


def test_large_request_is_refused_before_it_is_sent(served):
    asked = http.client.HTTPConnection("127.0.0.1", served.port, timeout=120)
    asked.putrequest("POST", "/api/2.0/mlflow/runs/log-batch")
    asked.putheader("Authorization", f"Basic {base64.b64encode(served.login.encode()).decode()}")
    asked.putheader("Content-Type", "application/json")
    asked.putheader("Content-Length", str(2**30))
    asked.endheaders()
    assert asked.getresponse().status == 413
    asked.close()


def test_files_of_a_server_are_its_owners_alone_and_code_beside_it_does_not_run(served):
    kept = served.home / "kept"
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (kept, *kept.rglob("*")) if not path.is_symlink()}
    assert len(modes) >= 4
    assert {path.name: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert {stat.S_IMODE(path.stat().st_mode) for path in served.home.glob("runs.db*")} == {0o600}
    assert not (served.home / "ran").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can act as another account")
def test_link_that_another_account_planted_is_not_served(tmp_path):
    """Whoever may write the folder of the results let the server give out another one of its owner's."""
    home = prepared(tmp_path)
    (home / "config.yaml").write_text(configured())
    private = home / "private"
    private.mkdir(0o755)
    owned(private)
    (home / "mlartifacts").symlink_to(private)  # root's
    command = [*COMMAND, "ui", "--folder", "kept", "--configfile", "config.yaml", "--no-passwords"]
    command += ["--port", str(free_port())]
    try:
        done = subprocess.run(
            [*unprivileged(), *command],
            cwd=home,
            env={**os.environ, "COLUMNS": "400"},  # or the message breaks where the path is long
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.fail("it serves")
    assert done.returncode == 2
    assert "mlartifacts: belongs to another account" in done.stderr, done.stderr
    assert stat.S_IMODE(private.stat().st_mode) == 0o755


def test_lock_cannot_be_held_by_who_may_only_read(tmp_path):
    from leakbound.storage.locks import exclusive

    path = tmp_path / "some.lock"
    path.touch(0o644)
    with exclusive(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there is no root here")
@pytest.mark.parametrize("command", ["ui", "tracking-server"])
def test_root_serves_nothing(command, monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from leakbound.cli.command_line import app

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "execve", lambda *words: pytest.fail("served"))
    monkeypatch.chdir(tmp_path)
    words = [command, "--folder", "kept", "--port", str(free_port())]
    words += ["--database", "sqlite:///runs.db"] if command == "tracking-server" else []
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(configured())
    ended = CliRunner().invoke(app, words)
    assert "not as root" in str(ended.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config"]


def test_server_for_others_without_passwords_is_refused():
    from leakbound.tracking.server import server_words

    with pytest.raises(ValueError, match="others than this machine need passwords"):
        server_words(Path("artifacts"), "0.0.0.0", free_port(), 1, passwords=False)
