"""A record that stands several times in a table, and an owner of several records, are one unit of every bound.

What is stated is compared with determinants of the channel as it is stored, and with what the weights are trained on.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from chain import run_jobs, small_study

from calling import called, refused, step_called, succeeded
from leakbound import storage
from leakbound.accounting import dp
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.statement import Statement
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import prepare
from leakbound_lab.datasets.records import join_groups
from leakbound_lab.steps.inputs import read_dataset
from leakbound_lab.training.batches import FrozenInputs

STEPS = {"prepare", "covariance", "spectrum", "calibrate", "train"}
ARMS = {"natural": [2.0], "natural_frozen": [2.0], "dpsgd": [2.0]}
TRIPLED, OWNED = "tripled", "owned"
VALUES = np.random.default_rng(0).normal(size=(300, 4))
LABELS = np.resize(["ill", "well"], 300)


def run_of(data: str, arm: str) -> str:
    return f"{data}/mlp/{arm}/n12-b24"


def tables(folder: Path) -> None:
    """One with thirty records three times among others, and one with owners of four records."""
    frame = pd.DataFrame(VALUES, columns=list("abcd")).assign(label=LABELS)
    copied = pd.concat([frame[:30]] * 3 + [frame[30:240]], ignore_index=True).sample(frac=1.0, random_state=0)
    copied.to_csv(folder / "tripled.csv", index=False)
    frame.assign(patient=[f"p{row // 4}" for row in range(300)]).to_csv(folder / "owned.csv", index=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("units")
        tables(folder)
        patch.setenv("LEAKBOUND_DATA", str(folder))
        sizes = {"members": 60, "validation": 20, "pool": 150, "test": 60, "aux": 60, "reader": "table"}
        data = {
            TRIPLED: {**sizes, "path": "tripled.csv", "label_nats": 0.1},
            OWNED: {**sizes, "path": "owned.csv", "owner": "patient"},
        }
        config = small_study("units", "mlp", ARMS, replicas=2, datasets=data, privacy_noise="secure")
        study = {"datasets": [TRIPLED, OWNED], "rounds": [12], "batch_sizes": [24]}
        config["studies"]["small"] |= study
        return run_jobs(folder, config, patch, STEPS)[0]


def provenance(root: Path, data: str, arm: str) -> dict:
    return storage.read_json(root / "runs" / run_of(data, arm) / "provenance.json")


def determinant(root: Path, data: str, uses: float) -> float:
    """Nats of uses of one record by the covariance of the attacker's records, from the stored noise alone."""
    spectrum = storage.read_arrays(root / f"spectra/{data}/natural.safetensors")
    variances = storage.read_arrays(root / f"channels/{data}/natural-2.safetensors")["variances"]
    return 0.5 * float(np.log1p(uses * spectrum["eigenvalues"] / variances).sum())


def test_uses_of_copies_add_up_and_frozen_copies_are_one(results):
    fresh = provenance(results, TRIPLED, "natural-2")
    for event in fresh["events"]:
        assert (event["rows"], event["unit"], event["records"]) == (3, "record", 1)
        assert 12 <= event["uses"] <= 15  # 12 steps of 24 among 60 are 4 or 5 uses of each of three copies
    most = max(event["uses"] for event in fresh["events"])
    assert fresh["leakage"]["replica"]["record"] == pytest.approx(determinant(results, TRIPLED, most), rel=1e-9)
    both = sum(event["uses"] for event in fresh["events"])
    assert fresh["leakage"]["replicas"]["record"] == pytest.approx(determinant(results, TRIPLED, both), rel=1e-9)
    frozen = provenance(results, TRIPLED, "natural_frozen-2")
    assert frozen["leakage"]["replica"]["record"] == pytest.approx(2.0, rel=1e-6)
    assert Statement.from_numbers(fresh["statement"]["replica"]).subject == "one record with all its copies (at most 3)"


def test_copies_have_one_response(results):
    dataset = read_dataset(results / f"data/{TRIPLED}.safetensors")
    assert dataset.most == (3, 1, 1)
    for group in np.unique(dataset.copies):
        assert len({*dataset.pool.labels[dataset.copies == group]}) == 1
    capacity = RandomizedResponse.calibrate(2, 0.1).capacity
    assert provenance(results, TRIPLED, "natural-2")["leakage"]["labels"] == pytest.approx(capacity, rel=1e-12)


@pytest.mark.parametrize(("data", "rows"), [(TRIPLED, 3), (OWNED, 4)])
def test_dp_states_the_group(results, data, rows):
    record = provenance(results, data, "dpsgd-2")
    event = PrivacyEvent(**record["events"][0])
    assert (event.rows, event.uses) == (rows, 12 * rows)
    alone = dp.poisson_epsilon(2.0, 24 / 60, 12, 1e-5)
    group = dp.poisson_epsilon(2.0, 24 / 60, 12, 1e-5, rows=rows)
    assert record["leakage"]["replica"]["epsilon"] == pytest.approx(group, rel=1e-12)
    assert group > 2 * alone
    curves = storage.read_rows(results / "runs" / run_of(data, "dpsgd-2") / "training.parquet")
    assert curves.loc[curves["metric"] == "epsilon", "value"].iloc[-1] == pytest.approx(group, rel=1e-12)
    assert record["leakage"]["replica"]["record"] == dp.record_information(event)


def test_bounds_of_owners_are_about_all_their_records_and_labels(results):
    record = provenance(results, OWNED, "natural-2")
    for event in record["events"]:
        assert (event["unit"], event["rows"], event["records"]) == ("owner", 4, 4)
    most = max(event["uses"] for event in record["events"])
    assert 16 <= most <= 20
    expected = 4 * determinant(results, OWNED, most / 4)
    assert record["leakage"]["replica"]["record"] == pytest.approx(expected, rel=1e-9)
    assert record["leakage"]["labels"] == pytest.approx(4 * math.log(2), rel=1e-12)
    frozen = provenance(results, OWNED, "natural_frozen-2")
    assert frozen["leakage"]["replica"]["record"] == pytest.approx(8.0, rel=1e-6)
    sentence = record["statement"]["replica"]["sentence"]
    assert "about all records of one owner together (at most 4)" in sentence
    assert "records of one owner may depend on each other" in sentence
    dataset = read_dataset(results / f"data/{OWNED}.safetensors")
    for part in (dataset.parts(0), dataset.parts(1)):
        held = [{*dataset.owners[rows].tolist()} for rows in (part.members, part.nonmembers)]
        assert not held[0] & held[1]


@pytest.mark.parametrize("data", [TRIPLED, OWNED])
def test_account_and_publish_repeat_them(results, data, tmp_path, monkeypatch):
    run = run_of(data, "natural-2")
    file = results / "runs" / run / "provenance.json"
    noise = ("--channel", results / f"channels/{data}/natural-2.safetensors")
    told = json.loads(
        succeeded("account", file, *noise, "--spectrum", results / f"spectra/{data}/natural.safetensors", "--json").out
    )
    record = storage.read_json(file)
    assert [row["joint"] for row in told["replay"]] == [
        record["leakage"][of]["record"] for of in ("replica", "replicas")
    ]
    assert [row["verified"] for row in told["replay"]] == [True, True]
    assert told["statement"] == record["statement"]
    monkeypatch.chdir(results.parents[1])
    assert called("publish", run, "--out", tmp_path / "out").code == 0
    page = (tmp_path / "out/README.md").read_text()
    assert record["statement"]["replica"]["sentence"] in page


def test_members_with_equal_rows_share_their_frozen_copy(channel_for_copies):
    images, rows, sampler, source = channel_for_copies
    seen = FrozenInputs(images, rows, sampler, [source]).take(np_places(rows))
    flat = seen[0].flatten(1)
    assert (flat[0] == flat[2]).all()
    assert not (flat[0] == flat[1]).any()


@pytest.fixture
def channel_for_copies():
    import torch

    from leakbound.channels import Natural, population_moments
    from leakbound.channels.sampling import ChannelSampler
    from leakbound.randomness.sources import as_source

    moments = population_moments(VALUES)
    channel = Natural.calibrate(Natural.decompose(moments), 2.0)
    images = torch.from_numpy(VALUES[:2].astype(np.float32)).view(2, 1, 1, 4)
    sampler = ChannelSampler(channel, (1, 1, 4), images.device, on_grid=False)
    return images, torch.tensor([[0, 1, 0]]), sampler, as_source(torch.Generator().manual_seed(0))


def np_places(rows):
    import torch

    return torch.arange(rows.shape[1])[None]


def test_groups_join_through_both_groupings():
    copies, owners = np.array([0, 0, 2, 3, 4]), np.array([7, 5, 5, 9, 9])
    assert join_groups(copies, owners).tolist() == [0, 0, 0, 3, 3]
    assert join_groups(np.arange(3), np.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"owner": "nobody"}, "nobody"),
        ({"owner": "label"}, "owner = 'label': that is the column of the labels"),
        ({"owner": "gap"}, "row 3: column 'gap' names no owner"),
        ({"reader": "digits", "path": None, "owner": "patient"}, "its reader does not say whose a record is"),
    ],
)
def test_owners_that_cannot_be_are_refused(settings, words, tmp_path, monkeypatch):
    frame = pd.DataFrame(VALUES, columns=list("abcd")).assign(label=LABELS, gap=np.arange(300.0))
    frame.loc[3, "gap"] = np.nan
    frame.to_csv(tmp_path / "mine.csv", index=False)
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    config = {"reader": "table", "path": "mine.csv", "members": 20, "pool": 60, "aux": 40, **settings}
    job = {"dataset": "mine", "seed": 0, "config": {name: value for name, value in config.items() if value is not None}}
    files = {"out": tmp_path / "mine.safetensors", "provenance": tmp_path / "mine.json"}
    assert words in refused(step_called("prepare", job, files))
    assert not (tmp_path / "mine.safetensors").exists()


def test_an_array_of_owners_prepares_as_the_column_of_a_table_does(tmp_path, monkeypatch):
    tables(tmp_path)
    frame = pd.read_csv(tmp_path / "owned.csv")
    arrays = {"records": frame[list("abcd")].to_numpy(), "labels": LABELS, "patient": frame["patient"].to_numpy(str)}
    np.savez(tmp_path / "owned.npz", **arrays)
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    sizes = {"members": 60, "validation": 20, "pool": 150, "test": 60, "aux": 60, "reader": "table", "owner": "patient"}
    column, array = (prepare("owned", DatasetConfig(**sizes, path=f"owned.{kind}"), 0) for kind in ("csv", "npz"))
    assert np.array_equal(column.owners, array.owners)
    assert (column.most, column.unit) == (array.most, array.unit) == ((4, 4, 4), "owner")
