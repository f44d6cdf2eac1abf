"""`leakbound publish` writes one replica that its stated bound covers, and nothing else, or says why it may not."""

import json
import math
import os
import re
import shutil
import stat
import struct
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from chain import run_jobs, small_study
from safetensors import safe_open

from calling import assert_refused, called, files_in, refusal, succeeded
from leakbound import storage
from leakbound.accounting.dp import epsilon
from leakbound.accounting.leakage import PrivacyEvent, composed_leakage
from leakbound.accounting.risk import bound_text
from leakbound.accounting.statement import Statement
from leakbound_lab import models
from leakbound_lab.config import reading
from leakbound_lab.jobs.job import Job
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.results import summary

SEED = 7_301_994
FILES = ["README.md", "event.json", "statement.json", "weights.safetensors"]
UNBOUNDED = {"none": [], "parameter_noise": [0.5], "gradient_compression": [0.5]}
UNBOUNDED |= {"large_batch": [2.0], "compression": [0.0], "clipped": [0.0]}
ARMS = {arm: [4.0] for arm in ("natural", "rate_distortion", "natural_frozen", "white")}
ARMS |= {"dpsgd": [1.0], "channel_dpsgd": [1.0], **UNBOUNDED}
CONFIG = small_study("release", "mlp", ARMS, seed=SEED, privacy_noise="secure", replicas=3)
CONFIG |= {"defenses": {"clipped": {"mechanism": "dpsgd"}}}
CONFIG["training"]["learning_rates"] = [0.0123]
RECIPES = {"defenses": {"natural": [8.0]}, "rounds": [6], "rates": "all", "lengths": "all"}
CONFIG["studies"]["recipes"] = CONFIG["studies"]["small"] | RECIPES
STEPS = {"prepare", "covariance", "spectrum", "calibrate", "train"}


def after(job: Job) -> None:
    """Let channels say whose covariance they were calibrated to."""
    if job.step == "calibrate":
        path = Path(job.outputs["out"])
        arrays, metadata = storage.read_arrays_and_metadata(path)
        law = "members" if job.name == "digits/white-4" else metadata.get("covariance_of", "aux")
        storage.write_arrays(path, arrays, {**metadata, "covariance_of": law})


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """Folder of a configuration whose trainings are finished."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("release")
        run_jobs(folder, CONFIG, patch, STEPS, after)
        return folder


@pytest.fixture
def project(trained, tmp_path, monkeypatch) -> Path:
    """A copy of it that may be changed, as the working folder."""
    folder = shutil.copytree(trained, tmp_path / "project")
    monkeypatch.chdir(folder)
    return folder


def run_of(arm: str) -> str:
    return f"digits/mlp/{arm}/n5-b16"


def publish(arm: str, *options: object):
    return succeeded("publish", run_of(arm), "--out", "out", *options)


def header(path: Path) -> dict:
    """Header of a safetensors file, once all of its bytes are accounted for."""
    content = path.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    found = {name: one for name, one in json.loads(content[8 : 8 + size]).items() if name != "__metadata__"}
    assert 8 + size + max(one["data_offsets"][1] for one in found.values()) == len(content)
    return found


def test_of_a_training_that_keeps_all_lengths_the_weights_of_its_end_are_published(project):
    """Weights lie length by length within a replica: row 1 is replica 0 at its best point."""
    succeeded("publish", "digits/mlp/natural-8/n6-b16", "--out", "out", "--replica", 1)
    weights = storage.read_arrays("results/release/runs/digits/mlp/natural-8/n6-b16/weights.safetensors")
    sent = storage.read_arrays("out/weights.safetensors", sealed=False)
    assert sent.keys() == weights.keys()
    assert all(np.array_equal(sent[name], array[5]) for name, array in weights.items())
    record = json.loads(Path("results/release/runs/digits/mlp/natural-8/n6-b16/provenance.json").read_text())
    covered = {one["item"]: one["covered"] for one in record["released"]}
    assert covered["weights"]
    assert not covered["weights of the best point"]


def test_a_training_of_an_earlier_version_is_refused_by_publish_and_by_the_report_with_the_way_on(project):
    """Its provenance has bounds, and no statement of them."""
    path = project / f"results/release/runs/{run_of('natural-4')}/provenance.json"
    record = storage.read_json(path)
    del record["statement"]
    storage.write_json(path, record)
    assert "an earlier version of leakbound wrote its provenance" in refusal(
        "publish", run_of("natural-4"), "--out", "out"
    )
    made = job_list(reading.load(Path("config/config.yaml")))
    with pytest.raises(ValueError, match=r"train/digits/mlp/natural-4/n5-b16: an earlier version .* train again"):
        summary(project / "results/release", made)


@pytest.mark.parametrize("arm", ["natural-4", "rate_distortion-4", "natural_frozen-4", "dpsgd-1", "channel_dpsgd-1"])
def test_published_folder_holds_one_replica_its_channel_and_its_event_and_nothing_else(project, arm):
    publish(arm, "--replica", 1)
    succeeded("publish", run_of(arm), "--out", "again", "--replica", 1)
    assert [Path("again", name).read_bytes() == Path("out", name).read_bytes() for name in FILES] == [True] * len(FILES)
    channel = not arm.startswith("dp")
    assert files_in(Path("out")) == sorted([*FILES, *(["channel.safetensors"] if channel else [])])
    assert stat.S_IMODE(Path("out").stat().st_mode) == 0o755
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path("out").iterdir()} == {0o644}
    assert not [path for path in project.iterdir() if path.name.startswith(".out")]
    weights = storage.read_arrays(f"results/release/runs/{run_of(arm)}/weights.safetensors")
    sent = storage.read_arrays("out/weights.safetensors", sealed=False)
    network = models.build("mlp", 1, 10, torch.Generator().manual_seed(0))
    shapes = {name: [*tensor.shape] for name, tensor in network.named_parameters()}
    assert {name: one["shape"] for name, one in header(Path("out/weights.safetensors")).items()} == shapes
    assert all((sent[name] == weights[name][1]).all() for name in weights)
    assert not any((sent[name] == weights[name][other]).all() for name in weights for other in (0, 2))
    if channel:
        kept = {"variances", "ratios"} | ({"gain"} if arm == "rate_distortion-4" else set())
        assert header(Path("out/channel.safetensors")).keys() == kept
    event, statement = (storage.read_json(f"out/{name}.json", sealed=False) for name in ("event", "statement"))
    assert event.keys() == PrivacyEvent.__dataclass_fields__.keys() - {"unit", "rows", "records", "bands"}
    assert statement.keys() == {"run", "leakbound", "labels", "replica", "replicas", "statement", "statements"}
    secret = "dp" in arm  # of a secret sample nothing is counted
    assert event["uses"] == (event["steps"] if secret else 2)


def test_published_text_holds_no_seed_no_hash_no_rate_and_no_measurement(project):
    publish("natural-4")
    text = "".join(path.read_text() for path in Path("out").iterdir() if path.suffix in (".md", ".json"))
    record = storage.read_json(f"results/release/runs/{run_of('natural-4')}/provenance.json")
    curves = storage.read_rows(f"results/release/runs/{run_of('natural-4')}/training.parquet")
    secrets = [str(SEED), "0.0123", record["settings_hash"], *record["inputs"].values(), *record["outputs"].values()]
    losses = [repr(value)[:9] for value in curves.loc[curves["metric"].str.endswith("loss"), "value"]]
    secrets += losses
    assert len(losses) == 9  # of members, of validation and of test records, of three replicas
    assert not [secret for secret in secrets if secret in text]
    assert not re.search(r"[0-9a-f]{32}", text)


def test_receiver_recomputes_the_bounds_from_event_and_channel_alone(project):
    publish("natural-4")
    event, statement = (storage.read_json(f"out/{name}.json", sealed=False) for name in ("event", "statement"))
    channel = storage.read_arrays("out/channel.safetensors", sealed=False)
    one = PrivacyEvent(**event)
    for count, stated in enumerate(statement["replicas"], start=1):
        assert composed_leakage([one] * count, channel["ratios"]).record == stated["record"]
    assert statement["replica"] == statement["replicas"][0]
    assert len(statement["replicas"]) == 3
    assert statement["labels"] == math.log(10)
    page = Path("out/README.md").read_text()
    told = Statement.from_numbers(statement["statement"])
    assert told.nats == statement["replica"]["record"] + math.log(10)
    assert f"**{told.sentence}** The average is over records with the covariance of the public" in page
    assert f"--nats {bound_text(told.nats, digits=4)} --records {one.population}`" in page
    assert "3 replicas were trained on records of one pool" in page
    assert statement["statements"][2]["sentence"] in page
    assert statement["statements"][2]["values"] == statement["replicas"][2]["record"]


def test_receiver_of_a_network_for_a_table_scales_its_columns_as_its_training_did(tmp_path, monkeypatch):
    columns = np.random.default_rng(0).normal(5.0, [1.0, 30.0, 0.1], (300, 3))
    table = pd.DataFrame(columns, columns=["age", "size", "dose"]).assign(label=np.resize(["ill", "well"], 300))
    table.to_csv(tmp_path / "own.csv", index=False)
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    data = {"own": {**CONFIG["datasets"]["digits"], "reader": "table", "path": "own.csv"}}
    study = {**CONFIG["studies"]["small"], "datasets": ["own"], "defenses": {"dpsgd": [1.0]}}
    run_jobs(tmp_path, {**CONFIG, "datasets": data, "studies": {"small": study}}, monkeypatch, STEPS)
    assert called("publish", "own/mlp/dpsgd-1/n5-b16", "--out", "out").code == 0
    inputs = json.loads(safe_open("out/weights.safetensors", "numpy").metadata()["inputs"])
    assert (inputs["shape"], inputs["classes"], inputs["columns"]) == ([1, 1, 3], ["ill", "well"], [*table.columns[:3]])
    scaled = np.clip((columns - inputs["mean"]) * inputs["factor"], -1, 1).astype(np.float32)
    aux = storage.read_arrays("results/release/data/own.safetensors")["aux_images"].reshape(-1, 3)
    assert {*map(tuple, aux.tolist())} <= {*map(tuple, scaled.tolist())}
    assert "of columns. Its largest output is the class: ('ill', 'well')" in Path("out/README.md").read_text()


def test_receiver_recomputes_epsilon_from_the_event_alone_and_has_the_scale_of_pixels_and_the_classes(project):
    publish("dpsgd-1")
    event, statement = (storage.read_json(f"out/{name}.json", sealed=False) for name in ("event", "statement"))
    found = [epsilon(PrivacyEvent(**{**event, "steps": count * event["steps"]}), 1e-5) for count in (1, 2, 3)]
    assert [one["epsilon"] for one in statement["replicas"]] == pytest.approx(found, rel=1e-12)
    sentence = statement["statement"]["sentence"]
    assert f"**{sentence}** It holds whatever the record is." in Path("out/README.md").read_text()
    assert sentence.startswith("The weights of one replica reveal about one record at most ε = ")
    assert "nats for every record, labels included" in sentence
    assert statement["labels"] == 0.0
    inputs = json.loads(safe_open("out/weights.safetensors", "numpy").metadata()["inputs"])
    assert (inputs["model"], inputs["shape"], inputs["classes"]) == ("mlp", [1, 32, 32], [*"0123456789"])
    assert (np.array([0, 255]) - inputs["mean"]) * inputs["factor"] == pytest.approx([-1, 1])


@pytest.mark.parametrize("name", ["lenet", "lenet_sigmoid", "mlp", "cnn", "resnet10"])
def test_networks_keep_nothing_of_records_but_trained_parameters(name):
    """A buffer, e.g. a running mean of activations, would be learned without noise."""
    network = models.build(name, 3 if name != "mlp" else 1, 10, torch.Generator().manual_seed(0))
    assert dict(network.named_buffers()) == {}
    assert all(parameter.requires_grad for parameter in network.parameters())


def refused(project: Path, arm: str, *reasons: str, options: tuple = ()) -> None:
    said = refusal("publish", run_of(arm), "--out", "out", *options)
    assert all(reason in said for reason in reasons), said
    assert not Path("out").exists()
    assert not [path for path in project.iterdir() if path.name.startswith(".out")]


@pytest.mark.parametrize("arm", [name + (f"-{level[0]:g}" if level else "") for name, level in UNBOUNDED.items()])
def test_run_without_a_bound_is_refused(project, arm):
    refused(project, arm, "weights: no bound was derived for")


def test_channel_calibrated_to_the_members_is_refused(project):
    refused(project, "white-4", "channel: calibrated to mean and covariance of the members", "covariance: aux")


@pytest.mark.parametrize(
    ("changes", "reasons"),
    [
        ({"privacy_noise": "seeded"}, ("noise from seeds, which whoever knows the seed", "privacy_noise: secure")),
        ({"training": {**CONFIG["training"], "learning_rates": [0.1, 1.0]}}, ("chosen among 2", "ln 2 = 0.69 nats")),
    ],
    ids=["noise from seeds", "rate chosen on private records"],
)
def test_run_with_something_that_no_bound_covers_is_refused(tmp_path, monkeypatch, changes, reasons):
    study = {**CONFIG["studies"]["small"], "defenses": {"dpsgd": [1.0]}}
    run_jobs(tmp_path, {**CONFIG, **changes, "studies": {"small": study}}, monkeypatch, STEPS)
    refused(tmp_path, "dpsgd-1", *reasons)


def test_diverged_replica_is_refused_and_the_others_are_not(project):
    path = Path(f"results/release/runs/{run_of('dpsgd-1')}/provenance.json")
    storage.write_json(path, {**storage.read_json(path), "diverged": [False, True, False]})
    refused(project, "dpsgd-1", "replica 1: it diverged", options=("--replica", 1))
    publish("dpsgd-1", "--replica", 2)


def test_replica_or_run_that_is_not_there_is_refused(project):
    refused(project, "dpsgd-1", "replica = 3: there are 3 replicas, counted from 0", options=("--replica", 3))
    refused(project, "natural-5", "trains no such run", "did you mean 'digits/mlp/natural-4/n5-b16'?")


def test_weights_of_another_run_are_refused(project):
    for name in ("weights.safetensors", ".weights.safetensors.sha256"):
        shutil.copy(f"results/release/runs/{run_of('none')}/{name}", f"results/release/runs/{run_of('dpsgd-1')}/{name}")
    refused(project, "dpsgd-1", "weights: they are not those of the provenance")


def test_provenance_of_other_settings_is_refused(project):
    path = Path("config/config.yaml")
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "replicas": 2}))
    refused(project, "dpsgd-1", "provenance: its settings differ from the configuration")


def test_channel_of_another_training_is_refused(project):
    path = Path("results/release/channels/digits/natural-4.safetensors")
    arrays, metadata = storage.read_arrays_and_metadata(path)
    storage.write_arrays(path, {**arrays, "variances": 2 * arrays["variances"]}, metadata)
    refused(project, "natural-4", "natural-4.safetensors: the weights were trained with another channel")


def test_weights_of_other_records_are_refused(project):
    path = Path("results/release/data/digits.safetensors")
    arrays, metadata = storage.read_arrays_and_metadata(path)
    storage.write_arrays(path, arrays, {**metadata, "classes": json.dumps([*"9876543210"])})
    refused(project, "dpsgd-1", "digits.safetensors: the weights were trained on other records")


def test_provenance_with_a_smaller_bound_is_refused(project):
    path = Path(f"results/release/runs/{run_of('dpsgd-1')}/provenance.json")
    record = storage.read_json(path)
    record["leakage"]["replica"]["epsilon"] /= 2
    storage.write_json(path, record)
    refused(project, "dpsgd-1", "the bounds of its events and channel differ")


@pytest.mark.parametrize("taken", ["full", "link"])
def test_folder_that_is_taken_is_left_as_it_is(project, taken):
    out, other = Path("out"), Path("other")
    other.mkdir()
    if taken == "full":
        out.mkdir()
        (out / "mine").write_text("mine")
    else:
        out.symlink_to(other)
    before = files_in(out)
    said = refusal("publish", run_of("dpsgd-1"), "--out", "out")
    assert "is there already. Name a folder that is missing or empty" in said
    assert files_in(out) == before


def test_empty_folder_is_filled_and_what_a_killed_publication_left_is_removed(project):
    Path("out").mkdir()
    left = Path(".out.a1b2c3d4")
    (left / ".out").mkdir(parents=True)
    (left / ".lock").touch()
    (left / ".out" / "weights.safetensors").write_bytes(b"half")
    publish("dpsgd-1")
    assert files_in(Path("out")) == FILES
    assert not left.exists()


def test_nothing_stays_of_a_publication_that_could_not_be_written(project, monkeypatch):
    """The disk is full at the third file."""
    written = []

    def full(number: int) -> None:
        written.append(number)
        if len(written) == 3:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcome = called("publish", run_of("dpsgd-1"), "--out", "new/out")
    assert len(written) == 3
    assert_refused(outcome, Path("new"))
