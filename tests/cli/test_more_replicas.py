"""More replicas train only the new networks, and end with the files of a run that trained all of them at once."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from leakbound import storage
from leakbound_lab.config.messages import parse
from leakbound_lab.config.whole import Config
from leakbound_lab.jobs.job import ANEW
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.step_command import make_result
from leakbound_lab.training import trainers
from studies import study

ROOT = Path(__file__).parents[2]
CONFIG = {
    "preset": "tiny",
    "datasets": {"digits": {"members": 60, "pool": 200, "validation": 30, "test": 60, "aux": 80}},
    "training": {"learning_rates": [0.03, 0.1], "evaluations": 2},
}
DEFENSES = {"none": [], "natural": [4.0], "dpsgd": [1.0]}
STUDY = study(DEFENSES, ["membership"], models=["mlp"], rounds=6, batch_size=16)
RUNS = [f"digits/mlp/{defense}/n6-b16" for defense in ("none", "natural-4", "dpsgd-1")]
BEFORE = ("prepare", "covariance", "spectrum", "calibrate")
UNDEFENDED = {"defenses": {"none": []}}
STATED = ("settings", "events", "leakage", "released", "diverged")  # in provenance


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> None:
    """An empty folder with the catalogue of figures."""
    (tmp_path / "config").symlink_to(ROOT / "config")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trained(monkeypatch) -> list[tuple[str, int]]:
    """Run and number of networks of each training, as they are trained."""
    calls = []
    train = trainers.train

    def counted(request):
        calls.append((request.slug, len(request.slots)))
        return train(request)

    monkeypatch.setattr(trainers, "train", counted)
    return calls


def make(replicas: int, *, code: str = "0123", records: str = "pool", seed: int = 0, **study) -> dict:
    """Make all networks, as the rules do, and return the content of each file."""
    membership = {"references": 2, "reference_records": records}
    config = CONFIG | {"replicas": replicas, "seed": seed, "attacks": {"membership": membership}}
    config["studies"] = {"comparison": STUDY | study}
    content = {}
    for job in job_list(parse(Config, config, "tiny")):
        files = {role: Path(path) for role, path in job.outputs.items()}
        if job.step == "train":
            for path in files.values():  # as Snakemake does
                path.unlink(missing_ok=True)
        if job.step in ("train", "references"):
            make_result(job, code)
            content[job.step, job.name] = {role: read(path) for role, path in files.items()}
        elif job.step in BEFORE and not all(map(Path.exists, files.values())):
            make_result(job, code)
    return content


def read(path: Path) -> Any:
    """Content of a file, of a provenance what it states of the networks."""
    if path.suffix == ".json":
        record = storage.read_json(path)
        return {name: record[name] for name in STATED}
    return pd.read_parquet(path) if path.suffix == ".parquet" else storage.read_arrays(path)


def assert_equal(one: dict, other: dict, **tolerance: float) -> None:
    """Files have the same content; numbers may differ by rounding, which depends on how many train together."""
    assert one.keys() == other.keys()
    for job in one:
        assert one[job]["provenance"] == other[job]["provenance"]
        for role in {*one[job]} - {"provenance", "weights"}:
            pd.testing.assert_frame_equal(one[job][role], other[job][role], check_exact=not tolerance, **tolerance)
        for name, values in one[job]["weights"].items():
            np.testing.assert_allclose(other[job]["weights"][name], values, **(tolerance or {"rtol": 0}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "study", "references"),
    [
        ("pool", {"rates": "all"}, 0),  # of rates that are all there
        ("candidates", {"rates": "all", "lengths": "all"}, 4),  # two rates of a new network
    ],
)
def test_more_replicas_train_the_new_ones_and_end_as_one_training(trained, records, study, references):
    fewer = make(2, records=records, **study)
    trained.clear()
    more = make(3, records=records, **study)
    assert trained[:3] == [(run, 2) for run in RUNS]
    assert trained[3:] == [(run, references) for run in RUNS if references]

    trained.clear()
    assert_equal(make(2, records=records, **study), fewer)
    assert trained == []

    shutil.rmtree("results")
    assert_equal(make(3, records=records, **study), more, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_networks_at_a_rate_that_new_replicas_choose_are_added_to_the_references(trained):
    make(2)
    trained.clear()
    more = make(3)
    assert {count for _, count in trained} == {2}
    shutil.rmtree("results")
    assert_equal(make(3), more, rtol=1e-4, atol=1e-6)


def test_everything_is_trained_again_if_more_than_the_number_has_changed_or_a_file_has(trained, monkeypatch):
    def all_trained(**changed) -> bool:
        trained.clear()
        make(2, **UNDEFENDED, **changed)
        return trained[:1] == [(RUNS[0], 4)]

    assert all_trained()
    assert not all_trained()
    assert all_trained(code="4567")
    assert all_trained(code="4567", seed=1)
    for name in ("weights.safetensors", "rates.parquet", "training.parquet", "provenance.json"):
        kept = Path("results/tiny/runs", RUNS[0], ".earlier", name)
        kept.write_bytes(kept.read_bytes()[:-1] + b"!")
        assert all_trained(code="4567", seed=1)
    assert not all_trained(code="4567", seed=1)
    monkeypatch.setenv(ANEW, "1")  # who forces a job means all of it
    assert all_trained(code="4567", seed=1)
