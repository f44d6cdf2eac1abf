"""Jobs share the GPUs of one machine evenly, and free them however they end."""

import os

import pytest

from leakbound.jobs import coordination

TAKE = """
import os, sys, time
from pathlib import Path
from leakbound.jobs.coordination import take_gpu
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


def test_without_the_variable_nothing_is_touched(monkeypatch, tmp_path):
    monkeypatch.delenv(coordination.GPUS, raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert coordination.take_gpu(tmp_path) is None
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["0,,1", "0,0", "0;1", "-1", "all of them"])
def test_what_names_no_gpus_is_refused(monkeypatch, tmp_path, given):
    monkeypatch.setenv(coordination.GPUS, given)
    with pytest.raises(ValueError, match=r"LEAKBOUND_GPUS = .*: give different GPUs"):
        coordination.take_gpu(tmp_path)
    assert not list(tmp_path.iterdir())
