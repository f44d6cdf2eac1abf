"""`make gpu`, rehearsed on a CPU, and the wheels that a machine with a GPU and no network lacks."""

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib.metadata import version
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import gpu
import gpu_correct
import gpu_fast
import numpy as np
import pandas as pd
import pytest
import torch

import gpu_wheels
from leakbound_lab.config.training import TrainingConfig

FACTS = {"python_version": "3.12", "sys_platform": "linux", "platform_machine": "x86_64", "platform_system": "Linux"}


def asked(seconds):
    return gpu.Asked("cpu", True, time.monotonic() + seconds)


def test_section_goes_on_after_an_error_and_says_what_it_left_out():
    def broken(seconds):
        yield {"metric": "ms", "value": 1.0}
        raise RuntimeError("first line\nsecond line")

    def late(seconds):
        raise AssertionError("no time was left for it")

    def last(seconds):
        now.append(time.monotonic())
        yield {"metric": "ms", "value": 2.0, "status": gpu.OK}

    now: list[float] = []
    limit = asked(60)
    found = list(gpu.rows_of("fast", [gpu.Case("a", "broken", broken), gpu.Case("a", "last", last)], limit))
    assert [row["status"] for row in found] == ["", "failed: RuntimeError: first line", "ok"]
    assert [row["value"] for row in found] == [1.0, pytest.approx(np.nan, nan_ok=True), 2.0]
    assert now[0] < limit.until
    found = list(gpu.rows_of("fast", [gpu.Case("a", "late", late)], asked(-1)))
    assert [(row["case"], row["status"]) for row in found] == [("late", "left out")]


def test_parts_measure_every_case_once_and_make_one_table(tmp_path, monkeypatch):
    monkeypatch.setattr(
        gpu_correct, "cases", lambda _: [gpu.Case("a", str(n), lambda _: [{"metric": "n"}]) for n in range(8)]
    )
    folders = [tmp_path / f"part{part}" for part in range(3)]
    for part, folder in enumerate(folders):
        gpu.run_section("correct", replace(asked(60), part=part, parts=3), folder)
    gpu.joined("correct", folders, tmp_path)
    assert sorted(pd.read_parquet(tmp_path / "gpu_correct.parquet")["case"]) == [str(n) for n in range(8)]
    assert {path.name for path in tmp_path.glob("[!.]*")} == {"gpu_correct.json", "gpu_correct.parquet"}


def test_learners_are_those_that_training_makes():
    """One stack of all replicas, under DP too; by itself a CPU takes networks on images of this size one by one."""
    for defense, largest in product(("none", "dpsgd"), (3, "auto")):
        asked = gpu_fast.request("small", 8, "cpu", defense, 3)
        assert asked.config.max_stack == 3
        learners = gpu_fast.learners_of(replace(asked, config=TrainingConfig(max_stack=largest)))
        sizes = [3] if largest == 3 else [1, 1, 1]
        assert [len(next(iter(one.params.values()))) for one in learners] == sizes


def test_carried_wheels_are_what_a_run_needs_beside_torch():
    there = gpu_wheels.missing(FACTS, gpu_wheels.USUAL, exact=False)
    assert {"opacus", "pydantic", "pydantic-core", "annotated-types", "cryptography", "cffi", "typer"} <= {*there}
    assert {"snakemake", "snakemake-interface-scheduler-plugins", "sqlmodel", "connection-pool"} <= {*there}
    assert {"torch", "triton", "numpy", "networkx", "sympy", "mlflow", "pulp", "pytest"}.isdisjoint(there)
    assert not [name for name in there if name.startswith(("nvidia", "cuda"))]
    everything = gpu_wheels.missing(FACTS, [], exact=False)
    assert {"numpy", "scipy", "pandas", "pyarrow"} <= {*everything}
    assert gpu_wheels.missing(FACTS, everything, exact=True) == []
    lines = gpu_wheels.pinned(there)
    assert lines.count("==") == len(there)
    assert lines.count("--hash=sha256:") >= len(there)


def test_kept_tables_are_those_that_were_measured(tmp_path, capsys):
    found, kept = tmp_path / "found", tmp_path / "reference" / "gpu"
    cases = [gpu.Case("a", "one", lambda _: [{"metric": "ms", "value": 2.5, "status": gpu.OK}])]
    rows = list(gpu.rows_of("fast", cases, asked(9)))
    gpu._write("fast", rows, asked(9), found, time.time())
    assert gpu.keep(found, kept, ["fast"]) == 0
    assert "2.5" in capsys.readouterr().out
    gpu._write("correct", rows, asked(9), found, time.time())
    assert gpu.keep(found, kept, ["correct"]) == 0  # next to those of the other section
    tables = [f"gpu_{name}.{kind}" for name in ("correct", "fast") for kind in ("json", "parquet")]
    assert sorted(path.name for path in kept.iterdir()) == ["MANIFEST.sha256", *tables]
    assert pd.read_parquet(kept / "gpu_fast.parquet")["value"].tolist() == [2.5]
    gpu._write("fast", [{**rows[0], "status": gpu.WRONG}], asked(9), found, time.time())
    assert gpu.keep(found, kept, ["fast"]) == 1  # and says so


def test_docs_say_what_the_kept_tables_say():
    home = Path(__file__).parents[2]
    page = (home / "docs" / "performance.md").read_text(encoding="utf-8")
    correct, fast = (
        pd.read_parquet(home / "results" / "reference" / "gpu" / f"gpu_{name}.parquet") for name in ("correct", "fast")
    )
    counts = correct["status"].value_counts()
    right, wrong = counts[gpu.OK], counts[gpu.WRONG]
    assert f"Of {right + wrong} comparisons {right} were right and {wrong} wrong." in page
    values = fast.set_index(["group", "case", "metric"])["value"]
    for name in ("ResNet10", "AlexNet", "VGG16"):
        before, tf32, bfloat16 = (
            f"{values['precision', f'{name.lower()}, {kind}', 'ms']:.2f}" for kind in ("float32", "tf32", "bfloat16")
        )
        assert f"| step of {name}, ms, in TF32 and bfloat16 | {before} | {tf32}, {bfloat16} |" in page
    for name, count in (("LeNet", 1), ("ten LeNets", 10)):
        cells = (line for line in page.splitlines() if line.startswith(f"| step of DP-SGD over SGD, {name} |"))
        ratio = values["private steps", f"lenet, K = {count}, dpsgd", "ratio"]
        assert next(cells).split("|")[3].strip() == f"{ratio:.2f}"


@pytest.mark.parametrize(
    ("apart", "right"),
    [
        ((1e-6, 5e-4, 1e-6), (True, True, True)),  # a unit of one network was turned
        ((1e-6, 5e-4, 5e-4), (False, True, True)),
        ((1e-6, 2e-3, 1e-6), (True, True, False)),
        ((1e-6, math.nan, 1e-6), (True, True, False)),
    ],
)
def test_weights_are_judged_by_the_median_network_and_the_farthest_one(apart, right, monkeypatch):
    def train(asked):
        moved = torch.tensor(apart if asked.device == "gpu" else (0.0,) * 3)
        weights = torch.ones(3, 8) + (0.0 if asked.rounds == 0 else 1.0) + 2 * moved[:, None]
        return SimpleNamespace(weights={"head.bias": weights})

    monkeypatch.setattr(gpu_correct, "train", train)
    rows = list(gpu_correct.compared_weights("none", 1, "gpu", 20))
    assert [row["metric"] for row in rows] == ["relative_distance", "of_way", "farthest"]
    assert tuple(row["status"] == gpu.OK for row in rows) == right


@pytest.mark.slow
def test_rehearsal_on_a_cpu_does_all_sections(tmp_path):
    words = [sys.executable, "tests/benchmarks/gpu.py", "--device", "cpu", "--quick", "--out", str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "LEAKBOUND_DATA"}
    done = subprocess.run(words, env=environment, cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = pd.concat([pd.read_parquet(tmp_path / f"gpu_{name}.parquet") for name in gpu.SHARES])
    assert tuple(rows.columns) == gpu.COLUMNS
    correct = rows[rows["section"] == "correct"]
    assert set(correct["status"]) == {gpu.OK, "", f"{gpu.LEFT_OUT}: no CUDA"}  # a CPU agrees with itself
    assert (correct.loc[correct["metric"] == "relative_distance", "value"] == 0).all()
    timed = rows[(rows["section"] == "fast") & (rows["metric"] == "ms")]
    assert (timed["value"].dropna() > 0).all()
    record = json.loads((tmp_path / "gpu_correct.json").read_text())
    assert record["versions"]["torch"] == version("torch")  # its package's, which need not name the build
    assert record["settings"]["quick"] is True
