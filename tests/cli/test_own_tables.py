"""``protect``, ``calibrate``, ``risk`` and ``compare`` take tables as they take pictures."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calling import called, refusal, succeeded
from leakbound import storage
from leakbound.channels.channel import GaussianChannel
from leakbound.records.tables import DEVIATIONS, load_table

COLUMNS = ("age", "grams", "rate")
UNITS = np.array([10.0, 4000.0, 0.01])


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Tables ``mine`` and ``public`` of three independent columns in very different units, as CSV and Parquet."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for name, count in (("mine", 200), ("public", 800)):
        table = pd.DataFrame(generator.normal(size=(count, 3)) * UNITS + 5 * UNITS, columns=list(COLUMNS))
        table.insert(1, "ill", generator.integers(0, 2, count))
        table.to_csv(f"{name}.csv", index=False)
        table.to_parquet(f"{name}.parquet")
    return tmp_path


def protected(*words):
    outcome = succeeded("protect", *words, "--target-leakage", 6, "--out", "out")
    return json.loads(Path("out/protection.json").read_text()), outcome


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_standardized_by_the_public_one_and_comes_back_in_its_units(tables, kind):
    stated, outcome = protected(f"mine.{kind}", "--public", f"public.{kind}", "--label", "ill")
    before, after = load_table(tables / f"mine.{kind}", "ill"), load_table(tables / "out" / f"mine.{kind}", "ill")
    assert after.columns == before.columns
    assert (after.labels == before.labels).all()
    noise = (after.values - before.values).reshape(200, 3) / UNITS
    # 6 nats over three independent directions of unit variance: λ/σ = e⁴ - 1 in each
    expected = 1 / np.sqrt(np.exp(4) - 1)
    assert noise.std(axis=0) == pytest.approx(np.full(3, expected), rel=0.2)
    assert stated["channel"]["std"]["root_mean_square"] == pytest.approx(expected, rel=0.05)
    assert stated["channel"]["units"] == "standard deviations"
    assert any("standardized by mean and standard deviation of the public" in each for each in stated["assumed"])
    assert "warning" not in outcome.err


def test_a_table_in_its_own_units_gets_one_noise_for_all_and_a_warning(tables):
    stated, outcome = protected("mine.csv", "--public", "public.csv", "--label", "ill", "--no-standardize")
    before, after = (load_table(tables / place, "ill").values[:, 0] for place in ("mine.csv", "out/mine.csv"))
    assert np.ptp((after - before).std(axis=0)) < 0.3 * (after - before).std()
    assert stated["channel"]["units"] == "units of the table"
    assert "--standardize brings them into one unit" in outcome.message


def test_identifiers_are_pointed_out_and_left_out_on_request(tables):
    for name in ("mine", "public"):
        table = pd.read_csv(f"{name}.csv")
        table.assign(patient=np.arange(len(table)) + 1000).to_csv(f"{name}.csv", index=False)
    words = ("calibrate", "mine.csv", "--public", "public.csv", "--label", "ill", "--target-leakage", 6)
    assert "'patient', as identifiers are. If so, leave it out: --exclude patient" in called(*words).message
    outcome = succeeded(*words, "--exclude", "patient")
    assert "identifiers" not in outcome.err


def test_a_channel_for_the_workflow_has_its_units(tables):
    words = ("mine.csv", "--public", "public.csv", "--label", "ill", "--kappa", 6, "--shape", "natural")
    plain = json.loads(called("calibrate", *words, "--json").out)
    succeeded("calibrate", *words, "--out", "channel.safetensors")
    channel = GaussianChannel.from_arrays(*storage.read_arrays_and_metadata("channel.safetensors"))
    # the workflow brings three standard deviations to 1, and clips what lies beyond
    variance = float(channel.pixel_variances().mean())
    assert DEVIATIONS**2 * variance == pytest.approx(plain["shapes"][0]["std"] ** 2, rel=0.05)


def test_risk_takes_tables(tables):
    words = ("risk", "--nats", 3, "--records", 100, "--data", "mine.csv", "--label", "ill", "--json")
    facts = json.loads(called(*words).out)["reconstruction"]
    # three independent directions of unit variance share 3 nats: each keeps λσ/(λ + σ) = e⁻²
    assert facts["mse"] == pytest.approx(np.exp(-2), rel=0.05)
    assert facts["mse_mean"] == pytest.approx(1.0, rel=0.02)
    assert facts["units"] == "standard deviations"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("mine.csv", "--label", "ill", "--exclude", "gram"), "has no column 'gram' of values to leave out"),
        (("mine.csv", "--label", "ill", "--resize", 32), "--resize: mine.csv holds a table"),
        (("mine.npz", "--exclude", "age"), "arrays have no named columns to leave out"),
        (("mine.npy", "--exclude", "age"), "--exclude: mine.npy holds arrays"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_written(tables, words, problem):
    np.save("mine.npy", np.random.default_rng(1).normal(size=(50, 4)))
    np.savez("mine.npz", records=np.random.default_rng(0).normal(size=(50, 2, 8)), labels=np.arange(50) % 2)
    assert problem in refusal("protect", *words, "--kappa", 3, "--calibrate-to-own", "--out", "out")
    assert not (tables / "out").exists()


def test_a_public_table_with_other_columns_is_refused(tables):
    pd.read_csv("public.csv")[["grams", "ill", "age", "rate"]].to_csv("public.csv", index=False)
    words = ("protect", "mine.csv", "--public", "public.csv", "--label", "ill", "--kappa", 3, "--out", "out")
    assert "both need the same in the same order" in refusal(*words)
