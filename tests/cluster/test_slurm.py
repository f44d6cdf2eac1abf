"""The workflow through a real SLURM: what jobs ask for, and what happens when they end before their time.

These tests run in turn, as one takes the node away.
"""

import json
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trouble
from project_copy import environment
from slurm_queue import CONFIGFILE, Queue, QueuedJob
from slurm_settings import DATASETS, STUDY, TRAINING

ENDS = {"hungry": 30, "broken": 30, "slow": 1}
"""Functions of `trouble`, and the minutes that their jobs may take at first."""
TROUBLE = {
    "preset": "trouble",
    "datasets": DATASETS,
    "studies": {"capacity": {**STUDY, "rounds": [8], "defenses": {"none": []}}},
    "plugins": {"illustrations": {name: f"trouble:{name}" for name in ENDS}},
    "tracking": {"enabled": False},
}
DRAWN = {"paper": "beyond", "title": "Trouble", "plot": "table", "options": {"cells": [{}]}, "caption": "Trouble."}


def test_jobs_ask_for_what_the_configuration_says(queue):
    if "gpu:" not in subprocess.run(["sinfo", "-h", "-o", "%G"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this SLURM has no GPUs, not even pretended ones")
    study = {**STUDY, "rounds": [8], "defenses": {"natural": [4.0]}}
    asked = {"calibrate": {"mem_mb": 1100, "runtime": 11}, "train": {"mem_mb": 1700, "runtime": 70, "gpu": 1}}
    made = queue({**TRAINING, "studies": {"capacity": study}, "resources": asked})
    provenance = "results/training/runs/digits/lenet/natural-4/n8-b16/provenance.json"
    status, words = made.run("--config", "replicas=2", "--", provenance)
    assert status == 0, words[-5000:]
    assert {job.work: (job.memory, job.time, job.gpus) for job in made.seen.values()} == {
        "rule_data_covariance_prepare": ("3000M", "1:00:00", "N/A"),
        "rule_channels_calibrate_spectrum": ("1100M", "22:00", "N/A"),
        "rule_train_wildcards_digits_lenet_natural-4_n8-b16": ("1700M", "1:10:00", "gres:gpu:1"),
    }
    assert json.loads((made.folder / provenance).read_text())["settings"]["replicas"] == 2


@pytest.fixture(scope="module")
def troubled(queue) -> dict[str, tuple[Queue, int, str]]:
    """A run of each function of `trouble`, whose job may take 1000 MB at first; all wait for SLURM at the same time."""

    def run(name: str) -> tuple[Queue, int, str]:
        asked = {"illustrations": {name: {}}, "resources": {"figures": {"mem_mb": 1000, "runtime": ENDS[name]}}}
        made = queue({**TROUBLE, **asked}, {"figures": [{"id": name, "illustration": name, **DRAWN}]})
        shutil.copy(Path(trouble.__file__), made.folder / "src")
        images = "results/trouble/data/digits.safetensors"
        return made, *made.run("--", f"results/trouble/illustrations/{name}.parquet", images)

    with ThreadPoolExecutor() as threads:
        return dict(zip(ENDS, threads.map(run, ENDS), strict=True))


def callers(queue: Queue, name: str) -> list[QueuedJob]:
    """The jobs that have called one of the functions of `trouble`, in order."""
    return [queue.seen[job] for job in (queue.folder / f"{name}.txt").read_text().split()]


def test_training_goes_on_after_each_way_to_end_it(queue):
    made, run = queue(TRAINING), "digits/lenet/none/n2000-b16"
    log = made.folder / f"results/training/logs/train/{run}.log"
    weights = made.folder / f"results/training/runs/{run}/weights.safetensors"
    blows = {500: cancel, 1000: kill, 1500: lose_node} if is_operator() else {500: cancel, 1000: kill}

    def strike() -> None:
        step = min(blows, default=None)
        if step is None or not log.is_file() or f"step {step} of" not in log.read_text():
            return
        saved = [path.stat().st_mtime for path in weights.parent.glob("checkpoint-*.pt")]
        running = [job for job in made.running() if job.work.startswith("rule_train")]
        if running and saved and max(saved) > log.stat().st_mtime:
            blows.pop(step)(made, running[0])

    undisturbed, target = queue(TRAINING).folder, weights.relative_to(made.folder)
    command = ["snakemake", "--configfile", CONFIGFILE, "-j", "1", str(target)]
    with ThreadPoolExecutor() as threads:
        alone = threads.submit(
            subprocess.run, command, cwd=undisturbed, env=environment(undisturbed), check=True, capture_output=True
        )
        status, words = made.run("--", str(target), meanwhile=strike)
        alone.result()
    assert status == 0, words[-5000:]
    assert not blows
    trained = [job for job in made.seen.values() if job.work.startswith("rule_train")]
    states = [job.state for job in sorted(trained, key=lambda job: int(job.job))]
    assert states == ["CANCELLED", "FAILED", "COMPLETED"]
    assert "step 500 of" not in log.read_text()  # the last start went on from a checkpoint

    for name in ("weights.safetensors", "training.parquet"):
        assert weights.with_name(name).read_bytes() == (undisturbed / target).with_name(name).read_bytes()


def test_job_that_takes_too_long_gets_more_time(troubled):
    made, status, words = troubled["slow"]
    assert status == 0, words[-3000:]
    tries = sorted((job for job in made.seen.values() if "illustrate" in job.work), key=lambda job: int(job.job))
    assert [job.time for job in tries] == [f"{attempt}:00" for attempt in range(1, len(tries) + 1)]
    states = [job.state for job in tries]  # a busy machine may need a third: two minutes hold three starts of Python
    assert states in (["TIMEOUT", "COMPLETED"], ["TIMEOUT", "TIMEOUT", "COMPLETED"]), words[-3000:]
    assert (made.folder / "results/trouble/illustrations/slow.parquet").is_file()


def test_job_that_takes_too_much_memory_gets_more(troubled):
    found = subprocess.run(["scontrol", "show", "config"], capture_output=True, text=True, check=True).stdout
    if "OverMemoryKill" not in found and "task/cgroup" not in found:
        pytest.skip("this SLURM does not end jobs that take more memory than they asked for")
    made, _, words = troubled["hungry"]
    ended, repeated = callers(made, "hungry")
    assert (ended.memory, repeated.memory) == ("1000M", "2000M"), words[-3000:]
    assert ended.state in {"OUT_OF_MEMORY", "FAILED"}  # FAILED where a step is ended and the job notices
    assert repeated.state == "COMPLETED"


def test_job_that_always_fails_runs_three_times_and_holds_nothing_up(troubled):
    made, status, words = troubled["broken"]
    ways = [(job.state, job.memory, job.time) for job in callers(made, "broken")]
    assert ways == [("FAILED", f"{n}000M", time) for n, time in enumerate(("30:00", "1:00:00", "1:30:00"), 1)]
    assert status != 0
    assert "ArithmeticError: as always" in words  # the log of a failed job is shown
    assert (made.folder / "results/trouble/data/digits.safetensors").is_file()


def cancel(queue: Queue, job: QueuedJob) -> None:
    subprocess.run(["scancel", job.job], check=True)


def kill(queue: Queue, job: QueuedJob) -> None:
    (computing,) = [process for process in queue.processes(job) if "snakemake" not in process.cmdline()]
    computing.kill()


def lose_node(queue: Queue, job: QueuedJob) -> None:
    for state in ("state=down", "state=resume"):
        change_nodes(state, "reason=test")


def change_nodes(*changes: str) -> bool:
    nodes = subprocess.run(["sinfo", "-h", "-o", "%N"], capture_output=True, text=True, check=True).stdout.strip()
    update = ["scontrol", "update", f"nodename={nodes}", *changes]
    return subprocess.run(update, capture_output=True).returncode == 0


def is_operator() -> bool:
    """Whether nodes are ours to take away: the cluster of tests/cluster/one_node.sh."""
    config = Path("/etc/slurm/slurm.conf")
    return config.is_file() and "one_node.sh" in config.read_text() and change_nodes("comment=test")
