"""Who may run a configuration, and what becomes of jobs whose coordinator is killed: with real processes."""

import errno
import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from leakbound.storage import locks
from leakbound_lab.jobs import coordination

LEAD = """
import sys, time
from pathlib import Path
from leakbound_lab.jobs import coordination
try:
    coordination.lead(Path(sys.argv[1]))
except coordination.BusyError as error:
    sys.exit(str(error))
import os
print(os.environ[coordination.RUN], flush=True)
time.sleep(600)
"""
FOLLOW = """
import time
from leakbound_lab.jobs import coordination
coordination.follow_coordinator()
print("at work", flush=True)
time.sleep(600)
"""


def kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


@pytest.fixture
def led(start, tmp_path):
    """A coordinator, and what it calls its run."""
    coordinator = start(LEAD, tmp_path)
    return coordinator, coordinator.stdout.readline().strip()


def test_second_coordinator_is_refused_until_the_first_is_gone_however_it_went(led, start, tmp_path):
    first, token = led
    assert token.endswith(f":{tmp_path}")
    refused = start(LEAD, tmp_path)
    message = refused.communicate()[1]
    assert refused.returncode == 1
    assert message.count("\n") == 1
    assert f"process {first.pid} on " in message
    assert start(LEAD, tmp_path / "other").stdout.readline()  # another configuration is free
    kill(first)
    second = start(LEAD, tmp_path).stdout.readline().strip()
    assert second.endswith(f":{tmp_path}")
    assert second != token


def test_job_ends_with_its_coordinator_even_if_that_is_killed(led, start):
    coordinator, run = led
    job = start(FOLLOW, LEAKBOUND_RUN=run, LEAKBOUND_COORDINATOR=str(coordinator.pid))
    other = start(FOLLOW)
    assert job.stdout.readline() == other.stdout.readline() == "at work\n"
    kill(coordinator)
    assert job.wait() == -signal.SIGKILL
    assert other.poll() is None  # whoever calls a command by hand depends on nobody


def test_job_ends_with_its_coordinator_where_the_system_cannot_tell_when(start):
    deaf = "import os, sys; del os.pidfd_open; os.environ['LEAKBOUND_COORDINATOR'] = str(os.getppid())\n" + FOLLOW
    parent = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {deaf!r}]); time.sleep(600)"
    coordinator = start(parent)
    assert coordinator.stdout.readline() == "at work\n"
    kill(coordinator)
    assert coordinator.stdout.read() == ""  # the job has let go of its output, so it is gone


def test_job_whose_coordinator_is_gone_before_it_starts_does_nothing(led, start):
    coordinator, run = led
    kill(coordinator)
    job = start(FOLLOW, LEAKBOUND_RUN=run, LEAKBOUND_COORDINATOR=str(coordinator.pid))
    assert job.wait() == -signal.SIGKILL


def test_next_run_waits_for_jobs_that_are_still_at_work_and_later_ones_find_it_over(led, start, tmp_path):
    first, run = led
    elsewhere = start(FOLLOW, LEAKBOUND_RUN=run)
    assert elsewhere.stdout.readline() == "at work\n"
    kill(first)
    second = start(LEAD.replace("try:", "coordination._TELL_SECONDS = 0.5\ntry:"), tmp_path)
    named = f"waiting for jobs of an earlier run, process {elsewhere.pid} on "
    assert named in second.stderr.readline()
    assert named in second.stderr.readline()  # it waits, and not in silence
    late = start(FOLLOW, LEAKBOUND_RUN=run)
    assert "superseded by a newer run; skipping" in late.communicate()[1]
    assert late.returncode == 1
    assert second.poll() is None
    kill(elsewhere)
    assert second.stdout.readline().rstrip().endswith(f":{tmp_path}")


def test_a_run_that_waits_names_no_job_that_has_ended_and_says_how_many_there_are_elsewhere(tmp_path):
    line = {"pid": 2**22 + 1, "host": socket.gethostname(), "called": "ended"}  # more than any process number here
    there = [{"pid": number, "host": "elsewhere", "called": f"leakbound step {number}"} for number in range(7)]
    text = "\n".join([json.dumps(line), "cut o", *map(json.dumps, there)])
    with (tmp_path / "lock").open("w+") as file:
        file.write(text)
        said = coordination._holders(file)
    assert said.startswith("the last 5 of 7: process 2 on elsewhere (leakbound step 2), ")
    with (tmp_path / "empty").open("w+") as file:
        assert coordination._holders(file) == "without a name"


def test_without_locks_a_run_goes_on_and_says_so(tmp_path, monkeypatch, capsys):
    def refuse(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.delenv(coordination.RUN, raising=False)
    coordination.lead(tmp_path)
    assert "Make sure yourself that nothing else runs this configuration" in capsys.readouterr().err
    assert coordination.RUN not in os.environ
    with locks.opened(tmp_path / "lock") as file, pytest.raises(locks.UnlockableError, match="lock: cannot be locked"):
        locks.acquire(file)


def test_lock_file_that_says_nothing_names_nobody(tmp_path):
    Path(tmp_path / ".coordinator.lock").write_text("{}")
    with locks.opened(tmp_path / ".coordinator.lock") as file:
        assert locks.acquire(file)
        with pytest.raises(coordination.BusyError, match="another process runs this configuration already"):
            coordination.lead(tmp_path)


# -- GPUs of one machine: shared evenly, and free however a job ends -----------------------------------------------


TAKE = """
import os, sys, time
from pathlib import Path
from leakbound_lab.jobs.coordination import take_gpu
print(take_gpu(Path(sys.argv[1])), take_gpu(Path(sys.argv[1])), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def job(start, tmp_path):
    """Starts a job; gives its process and the GPU that it has taken."""

    def started():
        process = start(TAKE, tmp_path, LEAKBOUND_GPUS="0, GPU-1a/2")
        (found,) = {*process.stdout.readline().replace("GPU-1a/2", "b").split()}
        return process, found

    return started


def test_jobs_spread_over_all_gpus_and_a_killed_one_frees_its_place(job):
    started = [job() for _ in range(4)]
    assert [name for _, name in started] == ["0", "b", "0", "b"]
    started[1][0].kill()
    started[1][0].wait()
    assert job()[1] == "b"  # the first place on it, before a third one on the other
    assert job()[1] == "0"


def test_without_the_variable_nothing_is_touched_and_what_names_no_gpus_is_refused(monkeypatch, tmp_path):
    monkeypatch.delenv(coordination.GPUS, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert coordination.take_gpu(tmp_path) is None
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    for given in ("0,,1", "0,0", "0;1", "-1", "all of them"):
        monkeypatch.setenv(coordination.GPUS, given)
        with pytest.raises(ValueError, match=r"LEAKBOUND_GPUS = .*: give different GPUs"):
            coordination.take_gpu(tmp_path)
    assert not list(tmp_path.iterdir())
