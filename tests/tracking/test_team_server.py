"""The server of a team: it keeps what it is given whatever happens to it, and lets in whom it should."""

import base64
import itertools
import os
import shutil
import signal
import stat
import subprocess
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
from mlflow.exceptions import MlflowException
from stored_rows import expected_rows, server_store, stored_rows
from team_server import COMMAND, TeamServer, free_port, installed, unprivileged

from leakbound.cli.launch.main import main
from leakbound.tracking import Artifact, Point, RunRecord, log_run, push, send_pending

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
    """Every run, value, param, tag and file of the records is in the database and the folder once, and nothing else."""
    (experiment,) = {record.experiment for record in records}
    stored = {
        kind: Counter({row: n for row, n in rows.items() if row[0] == experiment})
        for kind, rows in stored_rows(server_store(team)).items()
    }
    assert stored == expected_rows(records)


def status(address: str, login: str | None = None, host: str | None = None) -> int:
    """Status of a server's answer to a request."""
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
    team.start()
    record = made("first", "pushed", (file,))
    push(record, team.uri)
    assert_stored_once(team, record)
    listening = set()
    for process in team.processes():
        with suppress(psutil.NoSuchProcess):  # PostgreSQL has some for a moment only
            places = process.net_connections("inet")
            listening |= {(place.laddr.ip, place.laddr.port) for place in places if place.status == psutil.CONN_LISTEN}
    assert listening == {("127.0.0.1", team.port)}


def test_start_on_a_port_that_is_taken_is_refused_whoever_listens_there(team):
    team.start()
    for server in (team, bad := TeamServer()):
        folder = ["--folder", str(server.folder), "--port", str(team.port)]
        again = subprocess.run([*unprivileged(), *COMMAND, "tracking-server", *folder], capture_output=True, text=True)
        assert again.returncode == 2
        assert f"--port {team.port}: cannot be listened on" in again.stderr
    bad.remove()


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


def limit_files(team, most: str) -> None:
    """Let larger files fail as all do on a full disk."""
    top = psutil.Process(team.pid)
    for process in (top, *top.children(recursive=True)):
        limiting = ["prlimit", f"--pid={process.pid}", f"--fsize={most}:unlimited"]
        subprocess.run([*unprivileged(), *limiting], check=True)


@pytest.mark.skipif(shutil.which("prlimit") is None, reason="needs prlimit of util-linux")
def test_artifacts_without_room_stay_pending_until_there_is_some(team, file, tmp_path):
    team.start()
    records = [made(f"run {number}", "full", (file,)) for number in range(2)]
    limit_files(team, "200000")
    try:
        outcomes = [log_run(record, team.uri, tmp_path / "tracking" / f"{record.name}.json") for record in records]
    finally:
        limit_files(team, "unlimited")
    assert [outcome.status for outcome in outcomes] == ["pending"] * 2
    assert [outcome.status for outcome in send_pending(tmp_path / "tracking", team.uri)] == ["stored"] * 2
    assert_stored_once(team, *records)


@pytest.mark.slow
def test_server_killed_while_runs_are_logged_has_each_of_them_once_after_sync(team, between, file, tmp_path):
    records = [made(f"run {number}", "killed", (file,)) for number in range(4)]
    killed = []

    def kill(path: str) -> None:
        if between.count("runs/create") == 5 and not killed:  # the second of four runs, in the middle of its values
            killed.append(path)
            team.send(signal.SIGKILL)

    between.before = kill
    outcomes = [log_run(record, between.uri, tmp_path / f"{record.name}.json") for record in records]
    assert [outcome.status for outcome in outcomes] == ["stored", "pending", "pending", "pending"]
    between.before = lambda path: None
    team.start()
    assert [outcome.status for outcome in send_pending(tmp_path, between.uri)] == ["stored"] * 3
    assert [outcome.status for outcome in send_pending(tmp_path, between.uri, everything=True)] == ["stored"] * 4
    assert_stored_once(team, *records)


@pytest.mark.slow
def test_server_that_asks_for_a_password_takes_runs_with_their_files_from_who_knows_it(file, monkeypatch):
    if not installed():
        pytest.skip("needs PostgreSQL's initdb and pg_ctl (Debian and Ubuntu: apt install postgresql)")
    team = TeamServer(workers=2, passwords=True)
    record = made("known", "asked", (file,))
    try:
        team.start()
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "a wrong password")
        with pytest.raises(MlflowException, match="401"):
            push(record, team.uri)
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", (team.folder / "admin-password").read_text())
        push(record, team.uri)
        assert_stored_once(team, record)
    finally:
        team.remove()


@pytest.mark.slow
def test_server_for_others_keeps_what_it_had_and_asks_for_a_password_that_it_shows_nobody(team, tmp_path, monkeypatch):
    team.start()
    before, after = made("before", "survives"), made("after", "survives")
    push(before, team.uri)
    team.start("0.0.0.0")
    assert_stored_once(team, before)
    password = (team.folder / "admin-password").read_text()
    address = f"{team.uri}/{SEARCH}"
    assert status(f"{team.uri}/health") == 200
    assert [status(address), status(address, "admin:wrong password"), status(address, "nobody:x")] == [401] * 3
    assert status(address, f"admin:{password}") == 200
    assert status(address, f"admin:{password}", host="elsewhere.example.org") == 403

    refused = log_run(after, team.uri, tmp_path / "after.json")
    assert (refused.status, "401" in refused.reason) == ("pending", True)
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "admin")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", password)
    assert [outcome.status for outcome in send_pending(tmp_path, team.uri)] == ["stored"]
    assert_stored_once(team, before, after)

    shown = team.log.read_text(errors="replace") + (team.folder / "postgres" / "server.log").read_text(errors="replace")
    for process in team.processes():
        with suppress(psutil.NoSuchProcess):
            shown += "".join(process.cmdline())
    assert len(password) >= 20
    assert password not in shown
    for name in ("admin-password", "accounts.db"):
        assert stat.S_IMODE((team.folder / name).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("words", "environment", "message"),
    [
        (["--database", "postgresql://me:hidden@host/mlflow"], {}, "LEAKBOUND_TRACKING_DATABASE"),
        (["--database", "http://127.0.0.1:5000"], {}, "--database: must be the address of a database (postgresql"),
        (["--database", "postgresql:///mlflow?host=/none"], {}, "docs/tracking.md says how to make one"),
        (["--name", "*.example.org"], {}, "--name '*.example.org': may hold letters"),
        (["--host", "0.0.0.0"], {"LEAKBOUND_TRACKING_PASSWORD": "hidden"}, "needs at least 12"),
        (["--host", "192.0.2.1"], {"LEAKBOUND_TRACKING_DATABASE": "sqlite:///x.db"}, "--host 192.0.2.1 --port 5000"),
        (["--host", "0.0.0.0", "--no-passwords"], {}, "others than this machine need passwords"),
        (["--admin", "a b"], {}, "--admin 'a b': may hold letters"),
        (["--port", "0"], {}, "--port"),
    ],
)
def test_server_that_cannot_be_started_as_asked_is_refused_in_words(
    tmp_path, capsys, monkeypatch, words, environment, message
):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    port = [] if "--port 5000" in message else ["--port", str(free_port())]
    argv = ["leakbound", "tracking-server", "--folder", str(tmp_path / "server"), *port, *words]
    with mock.patch.object(sys, "argv", argv), pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in said
    assert "hidden" not in said
    assert not (tmp_path / "server").exists()
