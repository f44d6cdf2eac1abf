"""Commands done by the warm process of a run, beside the same commands started by themselves: with real processes."""

import ast
import ctypes
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from leakbound.cli.launch import warm

pytestmark = pytest.mark.skipif(not warm.available(), reason="this system has no warm process")
START = [
    sys.executable,
    "-c",
    "import sys; sys.argv[0] = 'leakbound'; from leakbound.cli.launch.main import main; main()",
]
COORDINATE = """
import os, sys
from leakbound.cli.launch import warm
warm.start(["numpy", "leakbound.randomness.sources", "readers_for_test"])
print(os.environ[warm.WARM], flush=True)
sys.stdin.read()
"""
# A reader of images from outside the package: a command calls it and looks at nothing that it does before.
READERS = """
import logging, os, random, signal, sys, threading, time, uuid

def tell(*facts):
    sys.stdout.write(ascii(facts))
    raise SystemExit

def process(name, config):
    tell(os.getpid(), os.getppid())

def facts(name, config):
    environment = sorted(pair for pair in os.environ.items() if pair[0] not in ("LEAKBOUND_WARM", "_"))
    logging.getLogger("outside").info("logged")
    tell(sys.argv, sys.path, os.getcwd(), environment, sys.stdin.read(), os.umask(0), signal.getsignal(signal.SIGTERM))

def draws(name, config):
    import numpy
    from leakbound.randomness.sources import SecureNoise
    secure = SecureNoise()
    drawn = [*secure.normal([2]).tolist(), secure.uniform(1).item()]
    tell(random.random(), numpy.random.random(), uuid.uuid4().hex, *drawn)

def thread(name, config):
    threading.Thread(target=lambda: (time.sleep(0.1), sys.stdout.write("later"))).start()
    sys.stdout.write("said")
    sys.exit("last words")

def defect(name, config):
    raise KeyError("unexpected")

def crash(name, config):
    os.kill(os.getpid(), signal.SIGSEGV)

def wait(name, config):
    signal.signal(signal.SIGTERM, lambda *_: (sys.stdout.write("terminated"), sys.exit(3)))
    sys.stderr.write(f"{os.getpid()} {os.getppid()}\\n")
    time.sleep(60)
"""


def words(reader: str) -> list[str]:
    """A command that calls one of the readers."""
    sizes = {"members": 10, "pool": 30, "test": 10, "aux": 10}
    settings = {"dataset": "odd", "config": {"reader": "odd", **sizes}, "seed": 0}
    settings["plugins"] = {"datasets": {"odd": f"readers_for_test:{reader}"}}
    files = ["--out", "odd.safetensors", "--provenance", "odd.json"]
    return ["step", "prepare", "--settings", json.dumps(settings), *files]


@dataclass
class Run:
    """A coordinator, which has started a warm process, and the folder and environment of its jobs."""

    folder: Path
    environment: dict[str, str]
    process: subprocess.Popen[str]

    @property
    def place(self) -> Path:
        return Path(self.environment[warm.WARM])

    def direct(self) -> dict[str, str]:
        return {name: value for name, value in self.environment.items() if name != warm.WARM}

    def started(self, *words: str, **options) -> subprocess.Popen[str]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        given = {"env": self.environment, "cwd": self.folder} | options
        return subprocess.Popen([*START, *words], text=True, **pipes, **given)

    def ended(self, *words: str, **options) -> tuple[int, str, str]:
        process = self.started(*words, **options)
        out, err = process.communicate("typed")
        return process.returncode, out, err

    def told(self, reader: str, **options) -> tuple:
        code, out, err = self.ended(*words(reader), **options)
        assert code == 0, err
        return ast.literal_eval(out)


def begun(folder: Path, *sources: Path) -> Run:
    (folder / "readers_for_test.py").write_text(READERS)
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "GOTO", "OPENBLAS", "MKL", "NUMEXPR")}
    paths = os.pathsep.join([str(folder), *map(str, sources), *(one for one in sys.path if one.endswith("src"))])
    environment = os.environ | threads | {"VECLIB_MAXIMUM_THREADS": "1", "PYTHONPATH": paths}
    environment.pop("PS1", None)
    command = [sys.executable, "-c", COORDINATE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, cwd=folder, text=True, **pipes)
    return Run(folder, environment | {warm.WARM: process.stdout.readline().strip()}, process)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    one = begun(tmp_path_factory.mktemp("run"))
    yield one
    one.process.communicate()
    assert not one.place.parent.exists()


@pytest.fixture
def doomed(tmp_path):
    """A run whose processes may be killed."""
    one = begun(tmp_path)
    yield one
    one.process.communicate()  # ends it, if it has not been killed, and then it removes its folder


def wait_until_gone(process: int) -> None:
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return
    assert select.select([handle], [], [], 20)[0], f"process {process} lives on"
    os.close(handle)


def at_work(run: Run) -> tuple[subprocess.Popen[str], int, int]:
    """The start of a command that waits, the process that does it, and the parent of that."""
    process = run.started(*words("wait"))
    job, parent = map(int, process.stderr.readline().split())
    assert job != process.pid
    return process, job, parent


def test_command_is_done_by_another_process_of_the_run_each_time(run):
    (one, parent), (other, again) = run.told("process"), run.told("process")
    assert parent == again != os.getpid()
    assert one != other


@pytest.mark.parametrize("reader", ["facts", "thread", "crash"])
def test_command_ends_as_if_it_had_been_started_by_itself(run, reader):
    code, out, err = run.ended(*words(reader))
    expected = run.ended(*words(reader), env=run.direct())
    assert (code, out) == expected[:2]
    assert [line[9:] if " logged" in line else line for line in err.splitlines()] == [
        line[9:] if " logged" in line else line for line in expected[2].splitlines()
    ]
    assert code == {"facts": 0, "thread": 1, "crash": -signal.SIGSEGV}[reader]


def test_mistake_and_defect_end_with_the_same_words(run):
    for command in (["step", "prepare", "--settings", "[]"], ["step", "prepar"]):
        assert run.ended(*command) == run.ended(*command, env=run.direct())
    code, out, err = run.ended(*words("defect"))
    expected = run.ended(*words("defect"), env=run.direct())
    assert (code, out) == expected[:2] == (1, "")
    place = err.index("leakbound/cli/command_line.py")  # above it stands who has called
    assert err[place:] == expected[2][expected[2].index("leakbound/cli/command_line.py") :]
    assert err.rstrip().endswith("report all of these lines with the command.")


def test_jobs_share_no_random_state(run):
    one, other = run.told("draws"), run.told("draws")
    assert not set(one) & set(other)


def test_signals_reach_the_job_and_its_end_is_that_of_the_command(run):
    process, job, _ = at_work(run)
    process.terminate()
    out, _ = process.communicate()
    assert (process.returncode, out) == (3, "terminated")
    wait_until_gone(job)


def test_job_ends_with_whoever_has_asked_for_it(run):
    process, job, _ = at_work(run)
    process.kill()
    wait_until_gone(job)
    process.communicate()
    assert run.told("process")[1] != os.getpid()  # others are done as before


def test_job_that_is_killed_ends_the_command_so(run):
    process, job, _ = at_work(run)
    os.kill(job, signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def test_warm_process_that_is_killed_takes_its_jobs_along_and_later_ones_start_by_themselves(doomed):
    process, job, parent = at_work(doomed)
    os.kill(parent, signal.SIGKILL)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "the warm process of this run has ended, and this job with it" in err
    wait_until_gone(job)
    assert doomed.told("process")[1] == os.getpid()


@pytest.mark.slow
def test_nothing_outlives_a_coordinator_that_is_killed(doomed):
    process, job, parent = at_work(doomed)
    doomed.process.kill()
    for one in (parent, job):
        wait_until_gone(one)
    assert process.wait() != 0
    process.communicate()
    assert not doomed.place.parent.exists()


@pytest.mark.parametrize("differing", [{"umask": 0o027}, {"env": {"OMP_NUM_THREADS": "2"}}])
def test_command_under_other_circumstances_starts_by_itself(run, differing):
    given = differing | {"env": run.environment | differing.get("env", {})}
    assert run.told("process", **given)[1] == os.getpid()


def test_prompt_of_an_activated_environment_which_the_shell_of_a_job_removes_makes_no_difference(run):
    (_, parent), (_, usual) = run.told("process", env=run.environment | {"PS1": "(.venv) "}), run.told("process")
    assert parent == usual != os.getpid()


CONFINED = {
    "no new privileges": lambda: ctypes.CDLL(None).prctl(38, 1, 0, 0, 0),
    "no capability to become somebody": lambda: ctypes.CDLL(None).prctl(24, 7, 0, 0, 0),
    "no network": lambda: ctypes.CDLL(None).unshare(0x40000000),
    "no host name": lambda: ctypes.CDLL(None).unshare(0x04000000),
    "filtered calls": lambda: allow_all_calls(),
}


def allow_all_calls() -> None:
    """Filter system calls, as a sandbox does, by a filter that lets all of them pass."""
    libc, instruction = ctypes.CDLL(None), struct.pack("HBBI", 0x06, 0, 0, 0x7FFF0000)
    code = ctypes.create_string_buffer(instruction)
    program = struct.pack("HxxxxxxP", 1, ctypes.addressof(code))
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.create_string_buffer(program), 0, 0) == 0


@pytest.mark.parametrize("how", CONFINED)
def test_job_of_a_confined_caller_is_not_done_by_a_process_that_is_not(run, how):
    """Whatever it says: an attacker in a sandbox could send any words."""
    confine = CONFINED[how]
    if how.startswith("no ") and "privileges" not in how and os.geteuid() != 0:
        pytest.skip("only root can give that up alone")
    assert run.told("process", preexec_fn=confine)[1] == os.getpid()
    assert run.told("process")[1] != os.getpid()


@pytest.mark.slow
def test_code_that_was_edited_during_a_run_is_not_run_as_it_was(tmp_path):
    """Neither the package's, loaded or not yet, nor that of a plugin: its provenance would name the new commit."""
    copy = tmp_path / "copy" / "leakbound"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(warm.__file__).parents[2], copy, ignore=ignored)
    for edited in (copy / "attacks" / "metrics.py", tmp_path / "readers_for_test.py"):
        one = begun(tmp_path, copy.parent)
        assert one.told("process")[1] != os.getpid()
        status, text = edited.stat(), edited.read_text()
        edited.write_text(text[:-1] + "\t")
        os.utime(edited, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert one.told("process")[1] == os.getpid()
        one.process.communicate()


def test_folder_of_the_socket_is_closed_to_others(run):
    assert run.place.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_is_not_answered_and_does_not_answer(doomed):
    become = "import os, socket, sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); "
    ask = become + "s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
    doomed.place.parent.chmod(0o755)
    doomed.place.chmod(0o777)
    refused = subprocess.run([sys.executable, "-c", ask, doomed.place], capture_output=True, text=True)
    assert refused.stdout == "b''\n", refused.stderr
    assert doomed.told("process")[1] != os.getpid()

    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    answer = become + "s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); "
    answer += "c, _ = s.accept(); print(c.recv(9), flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", answer, folder / "jobs"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as stranger:
        stranger.stdout.readline()
        environment = doomed.environment | {warm.WARM: str(folder / "jobs")}
        assert doomed.told("process", env=environment)[1] == os.getpid()
        assert stranger.stdout.readline() == "b''\n"
        stranger.communicate()
    (folder / "jobs").unlink()
    folder.rmdir()


def test_without_a_warm_process_commands_start_by_themselves(run, monkeypatch, tmp_path):
    assert run.told("process", env=run.environment | {warm.WARM: str(tmp_path / "jobs")})[1] == os.getpid()
    monkeypatch.setenv(warm.WARM, "0")
    assert not warm.available()


def test_run_without_room_for_a_socket_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.delenv(warm.WARM, raising=False)
    warm.start([])
    assert "leakbound: no warm process, so each job loads its own libraries: " in capsys.readouterr().err
    assert warm.WARM not in os.environ
    assert not list(folder.iterdir())


def test_start_of_a_command_loads_little():
    code = "import sys; from leakbound.cli.launch import handover, main; print(*sorted(sys.modules))"
    loaded = set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split())
    heavy = {"asyncio", "importlib.metadata", "json", "pathlib", "re", "subprocess", "typer", "typing", "numpy"}
    assert {"leakbound.cli.launch.main", "socket"} <= loaded
    assert not heavy & loaded


def test_time_and_memory_are_those_of_the_job(run):
    usage = run.folder / "usage.tsv"
    began = time.monotonic()
    code, _, err = run.ended("--usage", str(usage), "step", "theory", "--help")
    assert code == 0, err
    header, row = (line.split("\t") for line in usage.read_text().splitlines())
    assert header == ["s", "max_rss", "cpu_time"]
    seconds, memory, cpu = map(float, row)
    assert 0 < cpu <= seconds + 0.1
    assert seconds <= time.monotonic() - began
    assert memory > 50
    usage.unlink()
    assert run.ended("--usage", str(usage), *words("thread"))[0] == 1
    assert not usage.exists()
