"""The server of a team: it keeps what it is given whatever happens to it, and lets in whom it should."""

import base64
import hashlib
import itertools
import resource
import stat
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from unittest import mock

import psutil
import pytest
from bad_server import DROPPED, LOST
from serving import called, free_port
from sqlalchemy import create_engine, text

from leakbound.cli.main import main
from leakbound.tracking import Artifact, Point, RunRecord, log, postgres, push, sync
from leakbound.tracking.postgres import Cluster, ServerError

KEPT = """
    JOIN experiments e ON e.experiment_id = r.experiment_id
    JOIN tags k ON k.run_uuid = r.run_uuid AND k.key = 'leakbound.key'
    WHERE r.lifecycle_stage = 'active' AND e.name = :experiment
"""
RUNS = f"SELECT k.value, r.status, r.artifact_uri FROM runs r {KEPT}"
METRICS = f"SELECT k.value, m.key, m.step, m.timestamp, m.value FROM metrics m JOIN runs r USING (run_uuid) {KEPT}"
PARAMS = f"SELECT k.value, p.key, p.value FROM params p JOIN runs r USING (run_uuid) {KEPT}"
SEARCH = "api/2.0/mlflow/experiments/search"


def made(name: str, experiment: str, files: tuple[Path, ...] = ()) -> RunRecord:
    """A run with two children, each with 60 values."""
    points = tuple(Point(f"m{n}", step, 1000 + step, n + step / 100) for n in range(3) for step in range(20))
    children = tuple(RunRecord(f"{name}#{n}", experiment, f"replica {n}", 0, 9, metrics=points) for n in range(2))
    artifacts = tuple(Artifact.of(path) for path in files)
    params = {"level": name}
    return RunRecord(
        name, experiment, name, 0, 9, params=params, metrics=points, artifacts=artifacts, children=children
    )


def assert_stored_once(team, *records: RunRecord) -> None:
    """Every run, value, param and file of the records is in the database and the folder once, and nothing else."""
    (experiment,) = {record.experiment for record in records}
    engine = create_engine(team.database)
    with engine.connect() as connection:
        runs, metrics, params = (
            Counter(tuple(row) for row in connection.execute(text(query), {"experiment": experiment}))
            for query in (RUNS, METRICS, PARAMS)
        )
    engine.dispose()
    every = [run for record in records for run in (record, *record.children)]
    assert Counter((key, status) for key, status, _ in runs.elements()) == Counter((r.key, r.status) for r in every)
    assert metrics == Counter((r.key, p.key, p.step, p.timestamp, p.value) for r in every for p in r.metrics)
    assert params == Counter((r.key, *item) for r in every for item in r.params.items())
    files = Counter(
        (key, path.name, hashlib.sha256(path.read_bytes()).hexdigest())
        for key, _, uri in runs
        for path in (team.folder / "artifacts" / uri.removeprefix("mlflow-artifacts:/")).rglob("*")
        if path.is_file()
    )
    assert files == Counter((r.key, one.path.name, one.sha256) for r in every for one in r.artifacts)


def processes(team) -> list[psutil.Process]:
    """All processes of a server, those of PostgreSQL too."""
    main = int((team.folder / "database" / "postmaster.pid").read_text().split()[0])
    tops = [psutil.Process(team.process.pid), psutil.Process(main)]
    return [process for top in tops for process in (top, *top.children(recursive=True))]


def status(address: str, login: str | None = None, host: str | None = None) -> int:
    """What a server answers to a request."""
    headers = {} if login is None else {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}
    request = urllib.request.Request(f"{address}?max_results=1", headers=headers | ({"Host": host} if host else {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.fixture
def file(tmp_path) -> Path:
    """A file to be kept with a run."""
    path = tmp_path / "file.txt"
    path.write_bytes(b"artifact" * 40_000)
    return path


def test_server_can_be_reached_from_this_machine_only_and_stores_what_is_pushed(team, file):
    team.serve()
    record = made("first", "pushed", (file,))
    push(record, team.local)
    assert_stored_once(team, record)
    listening = set()
    for process in processes(team):
        with suppress(psutil.NoSuchProcess):  # PostgreSQL has some for a moment only
            places = process.net_connections("inet")
            listening |= {(place.laddr.ip, place.laddr.port) for place in places if place.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", team.port)}


def test_second_start_says_that_the_server_runs_already(team):
    team.serve()
    before = team.process.pid
    again = called("tracking-server", "--folder", team.folder, "--port", free_port())
    assert again.returncode == 0
    assert f"is serving already at {team.local}," in again.stdout
    assert f"tracking:\n  uri: {team.local}\n" in again.stdout
    assert team.process.pid == before


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ("experiments/create", LOST),
        ("runs/create", LOST),
        ("runs/log-batch", LOST),
        ("file.txt", LOST),
        ("runs/set-tag", LOST),
        ("runs/update", LOST),
        ("runs/create", DROPPED),
        ("runs/log-batch", 503),
        ("file.txt", 500),
    ],
)
def test_push_whose_request_or_answer_is_lost_ends_with_everything_once(team, between, file, end, fault):
    record = made("run", f"{end.replace('/', ' ')} {fault}", (file,))
    between.spoil_first(end, fault)
    push(record, between.uri)
    made_meanwhile = end == "experiments/create"  # which is looked for where it is made, without another attempt
    assert between.count("experiments/search") == (1 if made_meanwhile else 2)
    assert_stored_once(team, record)


def test_two_writers_of_the_same_record_make_one_run(team, between, file):
    record = made("run", "two writers", (file,))
    both, creations = threading.Barrier(2), itertools.count()
    between.before = lambda path: path.endswith("runs/create") and next(creations) < 2 and both.wait(600)
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: push(record, between.uri), range(2))
    assert one == other
    assert_stored_once(team, record)


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of other processes are Linux's")
def test_artifacts_without_room_stay_pending_until_there_is_some(team, file, tmp_path):
    team.serve()
    records = [made(f"run {number}", "full", (file,)) for number in range(2)]
    top = psutil.Process(team.process.pid)
    limited = [top, *top.children(recursive=True)]
    try:
        for process in limited:  # larger files fail there as all do on a full disk
            process.rlimit(psutil.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
        outcomes = [log(record, team.local, tmp_path / "tracking" / f"{record.name}.json") for record in records]
    finally:
        for process in limited:
            process.rlimit(psutil.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert [outcome.status for outcome in outcomes] == ["pending"] * 2
    assert [outcome.status for outcome in sync(tmp_path / "tracking", team.local)] == ["stored"] * 2
    assert_stored_once(team, *records)


def test_server_killed_while_runs_are_logged_has_each_of_them_once_after_sync(team, between, file, tmp_path):
    records = [made(f"run {number}", "killed", (file,)) for number in range(4)]
    killed = []

    def kill(path: str) -> None:
        if between.count("runs/create") == 5 and not killed:  # the second of four runs, in the middle of its values
            killed.append(path)
            team.kill()

    between.before = kill
    outcomes = [log(record, between.uri, tmp_path / f"{record.name}.json") for record in records]
    assert [outcome.status for outcome in outcomes] == ["stored", "pending", "pending", "pending"]
    between.before = lambda path: None
    team.serve()
    assert [outcome.status for outcome in sync(tmp_path, between.uri)] == ["stored"] * 3
    assert [outcome.status for outcome in sync(tmp_path, between.uri, everything=True)] == ["stored"] * 4
    assert_stored_once(team, *records)


def test_server_for_others_keeps_what_it_had_and_asks_for_a_password_that_it_shows_nobody(team, tmp_path, monkeypatch):
    team.serve()
    before, after = made("before", "survives"), made("after", "survives")
    push(before, team.local)
    said = team.stop() + team.serve("0.0.0.0")
    assert_stored_once(team, before)
    password = (team.folder / "admin-password").read_text()
    address = f"{team.local}/{SEARCH}"
    assert status(f"{team.local}/health") == 200
    assert [status(address), status(address, "admin:wrong password"), status(address, "nobody:x")] == [401] * 3
    assert status(address, f"admin:{password}") == 200
    assert status(address, f"admin:{password}", host="elsewhere.example.org") == 403

    refused = log(after, team.local, tmp_path / "after.json")
    assert (refused.status, "401" in refused.reason) == ("pending", True)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    assert [outcome.status for outcome in sync(tmp_path, team.local)] == ["stored"]
    assert_stored_once(team, before, after)

    secrets = {
        "admin-password": password,
        "database-password": (team.folder / "database-password").read_text().rpartition(":")[2].strip(),
        "session-key": (team.folder / "session-key").read_text(),
    }
    shown = said + "".join((team.folder / name).read_text(errors="replace") for name in ("server.log", "server.json"))
    shown += (team.folder / "database.log").read_text(errors="replace")
    for process in processes(team):
        with suppress(psutil.NoSuchProcess):
            shown += "".join(process.cmdline())
    for name, secret in secrets.items():
        assert len(secret) >= 20
        assert secret not in shown
        assert stat.S_IMODE((team.folder / name).stat().st_mode) == 0o600


def test_stop_where_nothing_runs_says_so_and_makes_nothing(tmp_path):
    result = called("tracking-server-stop", "--folder", tmp_path / "none")
    assert (result.returncode, "no server runs from here" in result.stdout) == (0, True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["--database", "postgresql://me:hidden@host/mlflow"], {}, "LEAKBOUND_TRACKING_DATABASE"),
        (["--database", "http://127.0.0.1:5000"], {}, "--database: must be an address that begins with postgresql"),
        (["--host", "0.0.0.0"], {"LEAKBOUND_TRACKING_PASSWORD": "hidden"}, "needs at least 12"),
        (["--host", "192.0.2.1"], {"LEAKBOUND_TRACKING_DATABASE": "sqlite:///x.db"}, "--host 192.0.2.1 --port 5000"),
        (["--port", "0"], {}, "--port"),
    ],
)
def test_server_that_cannot_be_started_as_asked_is_refused_in_words(
    tmp_path, capsys, monkeypatch, words, environment, message
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    argv = ["leakbound", "tracking-server", "--folder", str(tmp_path / "server"), *words]
    with mock.patch.object(sys, "argv", argv), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in said
    assert "hidden" not in said
    assert not (tmp_path / "server" / "server.json").exists()


def test_missing_postgresql_is_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "_INSTALLED", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServerError, match=r"initdb is neither on the PATH nor .*apt install postgresql"):
        Cluster(tmp_path / "server").start("mlflow")
    assert not (tmp_path / "server").exists()


def test_socket_lies_in_a_short_path_whatever_the_folder():
    for folder in (Path("/srv/tracking"), Path("/srv") / ("x" * 200)):
        host = Cluster(folder).uri("mlflow").partition("?host=")[2].partition("&")[0]
        assert len(f"{host}/.s.PGSQL.5432") < 104
