"""MLflow's server attacked as another account, a page in a browser and an ordinary user would.

Each attack is carried out on `mlflow server` as MLflow starts it, where it succeeds, on `leakbound ui`, and on the
server for a team that the documentation describes.
"""

import json
import re
import sqlite3
import stat
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mlflow_server import Server, free_port, own_words, running

ROOT = Path(__file__).parents[2]
LEAKBOUND = [sys.executable, "-c", "from leakbound.commands.command_line import main; main()"]
PASSWORD = "a password of the administrator"
SEARCH = "api/2.0/mlflow/experiments/search?max_results=1"
CREATE = "api/2.0/mlflow/experiments/create"
ASSISTANT = "ajax-api/3.0/mlflow/assistant"


def documented(port: int) -> list[str]:
    """The command of the server for a team, as the documentation has it, with the settings before it."""
    blocks = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "tracking.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [one for one in blocks if "\nmlflow server " in one]
    script = "\n".join(line for line in block.splitlines() if not line.startswith("pip "))
    script = script.replace("=...", f"='{PASSWORD}'").replace("5000", str(port)).replace("\nmlflow", "\nexec mlflow")
    return ["bash", "-ec", f"umask 077\n{script}"]


def opened(kind: str, home: Path, port: int) -> tuple[list[str], dict[str, str]]:
    """Command and variables of a server; its user's environment would weaken it."""
    if kind == "team":
        return documented(port), {}
    config = (ROOT / "config" / "config.yaml").read_text(encoding="utf-8")
    (home / "config.yaml").write_text(config.replace("sqlite:///results/mlflow.db", "sqlite:///mlflow.db"))
    weakened = {"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true"}
    return [*LEAKBOUND, "ui", "--configfile", "config.yaml", "--port", str(port)], weakened


@pytest.fixture(scope="module", params=["ui", "team"])
def served(request, tmp_path_factory) -> Iterator[Server]:
    """A server of one person, or of a team."""
    home, port = tmp_path_factory.mktemp("served"), free_port()
    command, environment = opened(request.param, home, port)
    with running(command, home, port, **environment) as server:
        server.login = f"admin:{PASSWORD}" if request.param == "team" else ""
        yield server


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Iterator[Server]:
    """MLflow's server as MLflow starts it."""
    home, port = tmp_path_factory.mktemp("bare"), free_port()
    with running(own_words(home, port), home, port) as server:
        yield server


def run_of(server: Server, experiment: dict[str, str]) -> str:
    """A new run in a new experiment."""
    made = json.loads(server.ask(CREATE, experiment)[1])["experiment_id"]
    run = server.ask("api/2.0/mlflow/runs/create", {"experiment_id": made})[1]
    return str(json.loads(run)["run"]["info"]["run_id"])


def linked(place: Path, run: str, secret: Path) -> None:
    """Let the artifacts of a run be a folder with a file that only the server's account may read."""
    secret.mkdir(0o700)
    (secret / "id_rsa").write_text("key of the server's owner")
    (place / run).mkdir(parents=True)
    (place / run / "artifacts").symlink_to(secret)


def test_mlflows_own_server_lets_any_account_in(bare, tmp_path):
    assert bare.status(f"{ASSISTANT}/config") == 200
    run = run_of(bare, {"name": uuid.uuid4().hex, "artifact_location": str(tmp_path)})
    linked(tmp_path, run, bare.home / "secret")
    assert bare.ask(f"get-artifact?run_id={run}&path=id_rsa")[:2] == (200, b"key of the server's owner")
    assert bare.status(SEARCH, Host="10.evil.example") == 200
    status, _, headers = bare.ask(SEARCH, Origin="http://localhost:6666")
    assert (status, headers["access-control-allow-credentials"]) == (200, "true")


def test_assistant_is_shut_by_whatever_method_even_to_the_administrator(served):
    from mlflow.server.assistant.api import assistant_router

    routes = [(route.path.lstrip("/"), method) for route in assistant_router.routes for method in route.methods]
    assert (f"{ASSISTANT}/config", "GET") in routes
    assert len(routes) > 10
    for path, method in routes:
        assert served.status(path, {} if method != "GET" else None, method) == 404, (method, path)


def test_default_server_of_mlflow_which_mounts_the_assistant_is_refused(monkeypatch):
    from leakbound_lab.tracking.application import without_passwords

    monkeypatch.setenv("_MLFLOW_SGI_NAME", "uvicorn")
    with pytest.raises(ValueError, match="give --gunicorn-opts"):
        without_passwords()


@pytest.mark.parametrize("served", ["team"], indirect=True)
def test_team_s_server_gives_nobody_anything_without_a_password(served):
    for path in (SEARCH, "", "graphql", "get-artifact?run_id=x&path=y", "signup", "static-files/x"):
        for login in ("", "admin:", "admin:password1234", "nobody:x"):
            assert served.ask(path, login=login)[0] in (401, 404), path
    assert served.status("health", login="") == 200
    assert served.status(SEARCH) == 200
    assert PASSWORD not in served.said()


def test_place_of_artifacts_is_not_the_clients_to_choose(served, tmp_path):
    for spelling in ("artifact_location", "artifactLocation"):
        for place in (str(tmp_path), "s3://elsewhere"):
            assert served.status(CREATE, {"name": uuid.uuid4().hex, spelling: place}) == 400
        twice = json.dumps(json.dumps({"name": uuid.uuid4().hex, spelling: str(tmp_path)})).encode()
        served.ask(CREATE, twice)
    with sqlite3.connect(served.home / "mlflow.db") as database:
        places = {place for (place,) in database.execute("SELECT artifact_location FROM experiments")}
    assert all(place.startswith("mlflow-artifacts:") or place.endswith("/0") for place in places), places


def test_place_that_an_earlier_server_took_from_a_client_is_not_read(served, tmp_path):
    run = run_of(served, {"name": uuid.uuid4().hex})
    linked(tmp_path, run, served.home / f"secret-{run}")
    with sqlite3.connect(served.home / "mlflow.db") as database:
        place = str(tmp_path / run / "artifacts")
        database.execute("UPDATE runs SET artifact_uri = ? WHERE run_uuid = ?", (place, run))
    assert served.status(f"get-artifact?run_id={run}&path=id_rsa") == 403
    assert served.status(f"ajax-api/2.0/mlflow/upload-artifact?run_uuid={run}&path=made", b"x", "POST") == 403
    listing = {"query": f'query {{ mlflowListArtifacts(input: {{runId: "{run}"}}) {{ files {{ path }} }} }}'}
    for answer in (
        served.ask(f"api/2.0/mlflow/artifacts/list?run_id={run}"),
        served.ask("api/2.0/mlflow/artifacts/list", {"run_id": run}, "GET"),
        served.ask("graphql", listing),
    ):
        assert b"id_rsa" not in answer[1], answer


def account(server: Server, name: str) -> tuple[str, str]:
    """Login of a new ordinary user, and a run of the user's own."""
    login = f"{name}-{uuid.uuid4().hex}:a password of {name}"
    user, _, password = login.partition(":")
    assert server.status("api/2.0/mlflow/users/create", {"username": user, "password": password}) == 200
    experiment = json.loads(server.ask(CREATE, {"name": user}, login=login)[1])["experiment_id"]
    run = json.loads(server.ask("api/2.0/mlflow/runs/create", {"experiment_id": experiment}, login=login)[1])
    return login, run["run"]["info"]["run_id"]


@pytest.mark.parametrize("served", ["team"], indirect=True)
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


def test_server_answers_to_its_exact_names_only(served):
    assert [served.status(SEARCH, Host=f"{name}:{served.port}") for name in ("127.0.0.1", "localhost")] == [200] * 2
    for name in ("10.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "x", "localhost:1"):
        assert served.status(SEARCH, Host=name) == 403, name


def test_server_listens_on_this_machine_alone(served):
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = {row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{served.port:04X}")}
    assert listening == {f"0100007F:{served.port:04X}"}


def test_page_from_elsewhere_neither_reads_nor_writes(served):
    for method, path, body in (("GET", SEARCH, None), ("POST", CREATE, {"name": uuid.uuid4().hex}), ("GET", "", None)):
        assert served.status(path, body, method, Origin="http://localhost:6666") == 403
        assert served.status(path, body, method, Origin="null") == 403
    for kind in ("cross-site", "same-site"):
        assert served.status(SEARCH, Sec_Fetch_Site=kind) == 403
        assert served.status("", Sec_Fetch_Site=kind) == 200  # a link to the pages, as the report has them
    assert served.status(SEARCH, Origin=served.uri, Sec_Fetch_Site="same-origin") == 200


def test_files_of_a_server_are_its_owners_alone(served):
    databases = [*served.home.glob("*.db"), *served.home.glob("mlartifacts")]
    assert len(databases) >= 2
    assert [path.name for path in databases if path.stat().st_mode & 0o077] == []


def test_ui_on_a_port_that_is_taken_is_refused_whoever_listens_there(served, tmp_path, monkeypatch):
    from calling import refusal

    command, _ = opened("ui", tmp_path, served.port)
    monkeypatch.chdir(tmp_path)
    assert f"--port {served.port}: cannot be listened on" in refusal(*command[3:])
    assert not (tmp_path / "mlflow.db").exists()


def test_lock_cannot_be_held_by_who_may_only_read(tmp_path):
    from leakbound.storage.locks import exclusive

    path = tmp_path / "some.lock"
    path.touch(0o644)
    with exclusive(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
