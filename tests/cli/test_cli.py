"""The commands as a shell would call them: files in, files out, mistakes as one message."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import leakbound
from leakbound import storage
from leakbound.cli.main import main

MODEL = {
    "dataset": "digits",
    "model": "lenet",
    "level": None,
    "batch_size": 16,
    "seed": 0,
    "device": "cpu",
    "defense": {"mechanism": "none"},
}


def run(*words: object) -> None:
    """Call the command line in this process."""
    before = sys.argv
    sys.argv = ["leakbound", *map(str, words)]
    try:
        with pytest.raises(SystemExit) as ended:
            main()
    finally:
        sys.argv = before
    if ended.value.code:
        raise SystemExit(ended.value.code)


def test_version_is_the_package_s(capsys):
    run("--version")
    assert capsys.readouterr().out == f"leakbound {leakbound.__version__}\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Path:
    """A folder with small digits, their covariance, and a natural spectrum."""
    folder = tmp_path_factory.mktemp("chain")
    settings = {"dataset": "digits", "config": {"members": 60, "test": 60, "aux": 60}, "seed": 0}
    images, provenance = folder / "digits.safetensors", folder / "digits.json"
    run("prepare", "--settings", json.dumps(settings), "--out", images, "--provenance", provenance)
    run("covariance", "--dataset", images, "--out", folder / "moments.safetensors")
    shape = {"shape": "natural", "weights": {"rows": [12, 20], "columns": [8, 24], "weight": 50.0}}
    source = ["--moments", folder / "moments.safetensors", "--out", folder / "spectrum.safetensors"]
    run("spectrum", "--settings", json.dumps(shape), *source)
    return folder


def tuned(folder: Path, rates: list[float]) -> Path:
    """Trials of a learning-rate search."""
    trials = folder / "trials.parquet"
    training = {"learning_rates": rates, "search_rounds": 20}
    settings = json.dumps({**MODEL, "training": training, "slug": "digits/lenet/none/b16"})
    run("tune", "--settings", settings, "--dataset", folder / "digits.safetensors", "--out", trials)
    return trials


def trained(folder: Path, trials: Path, *more: object) -> dict:
    """Provenance of a short training."""
    settings = {**MODEL, "training": {"evaluations": 1}, "rounds": 6, "replicas": 2, "slug": "digits/lenet/none/n6-b16"}
    outputs = {"weights": "w.safetensors", "rows": "rows.parquet", "provenance": "p.json"}
    files = [word for role, name in outputs.items() for word in (f"--{role}", folder / name)]
    inputs = ["--dataset", folder / "digits.safetensors", "--trials", trials]
    run("train", "--settings", json.dumps(settings), *inputs, *files, *more)
    return storage.read_json(folder / "p.json")


def test_search_tries_every_candidate_and_marks_the_best(prepared):
    table = pd.read_parquet(tuned(prepared, [0.01, 0.1]))
    assert list(table["learning_rate"]) == [0.01, 0.1]
    assert table.loc[table["chosen"], "validation_accuracy"].item() == table["validation_accuracy"].max()


def test_diverged_trial_is_recorded_in_the_provenance(prepared):
    trials = prepared / "diverged.parquet"
    good = {"learning_rate": 0.01, "validation_accuracy": 0.5, "diverged": False, "chosen": True}
    bad = {"learning_rate": 100.0, "validation_accuracy": None, "diverged": True, "chosen": False}
    storage.write_rows(trials, pd.DataFrame([good, bad]))
    found = trained(prepared, trials)
    assert found["trials"] == [good, bad]
    assert found["learning_rate"] == 0.01


def test_finished_training_leaves_no_checkpoint(prepared):
    trained(prepared, tuned(prepared, [0.01]), "--code", "abc")
    assert not list(prepared.glob("checkpoint*"))


def test_calibrated_channel_states_what_it_reaches(prepared):
    out = prepared / "channel.safetensors"
    settings = json.dumps({"shape": "natural", "capacity": 8.0})
    read = ["--spectrum", prepared / "spectrum.safetensors", "--members", prepared / "moments.safetensors"]
    run("calibrate", "--settings", settings, *read, "--out", out, "--provenance", prepared / "channel.json")
    metadata = storage.read_metadata(out)
    assert 8.0 * (1 - 1e-9) <= float(metadata["reached"]) <= 8.0
    assert metadata["covariance_of"] == storage.read_json(prepared / "channel.json")["covariance_of"] == "aux"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["covariance", "--dataset", "{folder}/spectrum.safetensors", "--out", "{folder}/x"], "`leakbound prepare`"),
        (["covariance", "--dataset", "{folder}/none.safetensors", "--out", "{folder}/x"], "cannot be read"),
        (["prepare", "--settings", "{}}", "--out", "{folder}/x", "--provenance", "{folder}/y"], "is not JSON"),
        (["prepare", "--settings", "[]", "--out", "{folder}/x", "--provenance", "{folder}/y"], "JSON object"),
        (["config", "--configfile", "{folder}/none.yaml"], "cannot be read"),
        (["calibrat"], "No such command"),
    ],
)
def test_mistake_ends_with_its_message_and_leaves_nothing(prepared, capsys, words, message):
    with pytest.raises(SystemExit) as ended:
        run(*[word.replace("{folder}", str(prepared)) for word in words])
    assert ended.value.code == 2
    shown = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert message in shown
    assert "Traceback" not in shown
    assert not (prepared / "x").exists()


def test_defect_of_ours_keeps_its_traceback(prepared, monkeypatch):
    """Only what explains itself is turned into a message; a bug is not hidden."""
    monkeypatch.setattr(storage, "read_arrays_and_metadata", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_raw("covariance", "--dataset", prepared / "digits.safetensors", "--out", prepared / "x")


def run_raw(*words: object) -> None:
    """Call the command line and let errors through."""
    before = sys.argv
    sys.argv = ["leakbound", *map(str, words)]
    try:
        main()
    finally:
        sys.argv = before
