"""Intermediate files that were truncated, altered or exchanged: refused by whatever reads them, found, made again."""

import os
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calling import called, job_called, refused, succeeded
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import ANEW
from leakbound_lab.steps.job_list import job_list
from studies import study

from .conftest import Project

ONE, OTHER = (f"digits/lenet/{variant}/n20-b32" for variant in ("white-4", "personalized-4"))


def silently(path: Path, content: bytes) -> None:
    """Change a file as a failing disk would: its time of change stays."""
    status = path.stat()
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def copied(whole, tmp_path, monkeypatch) -> Project:
    """A finished project that may be damaged, as the current folder."""
    shutil.copytree(whole.folder, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return Project(tmp_path / "project")


def deterministic(results: Path) -> dict[str, bytes]:
    """What a run, its attacks and its study's table hold beside times."""
    files = [results / "tables" / "capacity.parquet"]
    for folder in (results / "runs" / ONE, results / "attacks" / ONE):
        files += [path for path in folder.iterdir() if path.suffix in (".safetensors", ".parquet")]
    return {path.relative_to(results).as_posix(): path.read_bytes() for path in sorted(files)}


def test_damage_is_refused_by_the_job_that_meets_it_then_found_and_made_again(whole, copied, monkeypatch):
    verify = ["verify", "--configfile", "config/tiny.yaml"]
    succeeded(*verify)
    root = Path("results/tiny")
    expected = deterministic(root)
    assert len(expected) == 1 + 3 + 4
    weights, scores = root / "runs" / ONE / "weights.safetensors", root / "attacks" / ONE / "membership.parquet"
    facts = root / "runs" / ONE / "provenance.json"
    table = job_list(reading.load("config/tiny.yaml")).job("tabulate", "capacity")
    others = (root / "runs" / OTHER / "provenance.json").read_bytes()
    for path, content in ((scores, scores.read_bytes()[:-100]), (facts, others)):  # facts are read first
        silently(path, content)
        said = refused(job_called(table))
        assert said.startswith(f"leakbound: {path}: cannot be read (its SHA-256 is ")
        assert "Delete it and make it again; `leakbound verify` finds all such files." in said
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 4
    silently(weights, bytes(content))

    monkeypatch.setenv(ANEW, "1")  # else the attacks are put back, as nothing is known to have changed
    failed = copied.snakemake("--force", "--", str(scores))
    assert failed.returncode != 0
    monkeypatch.delenv(ANEW)
    log = Path(f"results/tiny/logs/attack/{ONE}.log").read_text()
    assert f"leakbound: {weights}: cannot be read (its SHA-256 is " in log
    assert "Traceback" not in log
    assert not scores.exists()

    found = called(*verify)
    assert found.code == 1
    damaged = {line.split(": ")[0] for line in found.out.splitlines() if ": damaged: " in line}
    assert damaged == {str(weights), str(facts)}
    assert found.out.count(": stale: ") == 9  # of two attacks and their references, which Snakemake took away
    assert weights.exists()

    found = called(*verify, "--remove")
    assert found.code == 1
    assert not {weights, scores, facts} & set(root.rglob("*"))
    advice = next(line for line in found.out.splitlines() if line.startswith("make them again: snakemake"))
    removed = advice.partition(" -- all ")[2].split()
    assert set(removed) == {str(weights), str(facts)}
    table = "results/tiny/tables/capacity.parquet"
    assert copied.planned("--", table, *removed) == {"train": 1, "attack": 1, "tabulate": 1}
    made = copied.snakemake("--", table, *removed)
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    assert deterministic(root) == expected == deterministic(whole.results)
    mended = called(*verify)
    assert (mended.code, ": stale: " in mended.out) == (0, False)


def test_seals_do_not_stand_in_the_way_when_all_output_is_deleted(copied):
    result = copied.snakemake("--delete-all-output", jobs=1)
    assert result.returncode == 0, result.stderr
    left = [path.relative_to(copied.results) for path in copied.results.rglob("*") if path.is_file()]
    # Kept results and networks are used again if nothing behind them has changed.
    shown = {path.parts[0] for path in left if not any(part.startswith(".") for part in path.parts)}
    assert shown <= {"logs", "benchmarks"}
    assert {path.parent.name for path in left if path.name == "weights.safetensors"} >= {".earlier"}


def test_records_are_prepared_again_when_their_original_file_is_edited(fresh, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(fresh.folder))

    def write(labels: list[int]) -> int:
        values = np.random.default_rng(0).normal(size=(len(labels), 3))
        path = fresh.folder / "mine.csv"
        pd.DataFrame(values, columns=[*"abc"]).assign(label=labels).to_csv(path, index=False)
        return path.stat().st_size

    size = write([0, 1] * 40)
    fresh.configure(
        {
            "preset": "tiny",
            "datasets": {"mine": {"reader": "table", "path": "mine.csv", "members": 20, "test": 20, "aux": 10}},
            "studies": {"own": study({"none": []}, datasets=["mine"], models=["mlp"], rounds=1, batch_size=8)},
            "tracking": {"enabled": False},
        }
    )
    target = "results/tiny/data/mine.safetensors"
    made = fresh.snakemake("--", target)
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    assert fresh.planned("--", target) == {}
    assert write([1, 0] * 40) == size
    assert fresh.planned("--", target) == {"prepare": 1}
