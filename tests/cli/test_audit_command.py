"""`leakbound audit`: its table, its alarm, and what it says of runs that tell nothing."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from calling import called, refusal
from leakbound import storage

NAMED = "digits/lenet_sigmoid/natural-4/n0-b1"
TRAINED = "digits/lenet/dpsgd-1/n20-b64"
FIGURES = Path(__file__).parents[2] / "config/figures"
RESULTS = Path("results/shown")
UNTRIED = {"low": np.nan, "high": np.nan, "status": "", "chosen": True}


@pytest.fixture
def configured(tmp_path, monkeypatch) -> None:
    """A configuration of three runs that were not made yet."""
    monkeypatch.chdir(tmp_path)
    one = {"datasets": ["digits"], "models": ["lenet_sigmoid"], "rounds": [0], "batch_sizes": [1]}
    trained = {"datasets": ["digits"], "models": ["lenet"], "rounds": [20], "defenses": {"dpsgd": [1.0]}}
    studies = {
        "naming": {**one, "defenses": {"natural": [4.0]}, "attacks": ["naming"]},
        "inversion": {**one, "defenses": {"none": []}, "attacks": ["gradient_inversion"]},
        "members": {**trained, "attacks": ["membership"]},
    }
    settings = {"preset": "shown", "catalogue": str(FIGURES), "datasets": {"digits": {}}, "studies": studies}
    Path("shown.yaml").write_text(yaml.safe_dump(settings))


def audit(run: str, *options: str):
    return called("audit", run, "--configfile", "shown.yaml", *options)


def write_named(bound: float) -> None:
    """Rows of two replicas in which the record was always named among ten."""
    values = [("images", "rate_1", 10, 1.0), ("images", "trials", -1, 50.0), ("bound", "nats_1", -1, bound)]
    rows = pd.DataFrame(values * 2, columns=["variant", "metric", "unit", "value"])
    rows = rows.assign(replica=[0, 0, 0, 1, 1, 1], learning_rate=np.nan, **UNTRIED)
    storage.write_rows(RESULTS / f"attacks/{NAMED}/naming.parquet", rows)


def test_what_is_demonstrated_stands_beside_what_is_allowed(configured):
    write_named(bound=4.0)
    result = audit(NAMED)
    assert result.code == 0, result.err
    header, line = result.out.splitlines()
    assert header.split() == ["release", "uses", "quantity", "demonstrated", "allowed", "trials", "attacker"]
    assert line.split()[:3] == ["images", "1", "nats"]
    assert 2.0 < float(line.split()[3]) < np.log(10)
    assert line.split()[4:] == ["4", "100", "naming"]


def test_more_than_is_allowed_is_an_alarm(configured):
    write_named(bound=0.5)
    result = audit(NAMED, "--json")
    assert result.code == 1
    assert "alarm: 1 of 1 lower limits lie above what the accountant" in result.message
    found = json.loads(result.out)
    assert (found["run"], found["confidence"]) == (NAMED, 0.95)
    assert [one["alarming"] for one in found["evidence"]] == [True]
    assert found["evidence"][0]["allowed"] == 0.5


def test_a_higher_confidence_demonstrates_less(configured):
    write_named(bound=4.0)
    found = [json.loads(audit(NAMED, "--json", "--confidence", level).out) for level in (0.9, 0.99)]
    low, high = (one["evidence"][0]["demonstrated"] for one in found)
    assert low > high


def test_trained_weights_are_audited_by_scores_and_stated_bounds(configured):
    members, others = np.random.default_rng(0).standard_normal((2, 3, 50))
    scores = {"strongest_members": 3 + members, "strongest_nonmembers": others}
    rows = pd.DataFrame({"replica": [0], "variant": [""], "unit": [-1], "metric": ["auc"], "value": [0.9]})
    rows = rows.assign(learning_rate=0.01, **UNTRIED)
    storage.write_rows(RESULTS / f"attacks/{TRAINED}/membership.parquet", rows)
    storage.write_arrays(RESULTS / f"attacks/{TRAINED}/membership.safetensors", scores)
    leakage = {"count": 3, "labels": 2.0, "replica": {"record": 7.0}}
    storage.write_json(RESULTS / f"runs/{TRAINED}/provenance.json", {"leakage": leakage})
    (nats,) = json.loads(audit(TRAINED, "--json").out)["evidence"]
    assert (nats["quantity"], nats["allowed"], nats["trials"], nats["alarming"]) == ("nats", 9.0, 3, False)


def test_runs_that_tell_nothing_are_refused_with_what_to_do(configured):
    for run, message in (
        (NAMED, "was not attacked yet"),
        ("digits/lenet_sigmoid/none/n0-b1", "add one of audit, membership, membership_uploads, naming to attacks of"),
        ("digits/lenet_sigmoid/natural-5/n0-b1", f"did you mean '{NAMED}'?"),
    ):
        assert message in refusal("audit", run, "--configfile", "shown.yaml")
