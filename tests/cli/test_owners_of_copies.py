"""``protect --owner``: copies whose target is one for all records of an owner together."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from calling import called, succeeded

MIXING = np.random.default_rng(7).normal(size=(4, 4))


def table(path, count, each, first=0):
    """Records of four values, ``each`` of one patient."""
    rows = np.random.default_rng(first).normal(size=(count, 4)) @ MIXING
    patients = [f"p{first + row // each}" for row in range(count)]
    pd.DataFrame(rows, columns=list("abcd")).assign(patient=patients, label=np.arange(count) % 2).to_csv(
        path, index=False
    )


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table("mine.csv", 60, 3)
    table("public.csv", 400, 1, first=1000)


@pytest.mark.parametrize("target", [["--target-leakage", 4], ["--target-identification", 0.1, "--candidates", 100]])
def test_all_records_of_an_owner_together_meet_the_target(target, tables, tmp_path):
    """Three records of a patient, 4 nats each, were once stated as 4."""
    succeeded("protect", "mine.csv", "--public", "public.csv", "--owner", "patient", *target, "--out", "copies")
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert told["statement"]["unit"] == "owner"
    assert told["statement"]["group"] == 3
    assert told["leakage"]["values"] == pytest.approx(3 * told["channel"]["capacity"])
    assert told["leakage"]["label"] == pytest.approx(3 * math.log(2))
    if target[0] == "--target-leakage":
        assert 0.9 * 4 < told["leakage"]["values"] <= 4
    else:
        assert told["leakage"]["identification"] <= 0.1
    assert list(pd.read_csv(tmp_path / "copies" / "mine.csv").columns) == [*"abcd", "label"]


def test_a_limit_of_each_copy_adds_up_over_the_records_of_an_owner(tables):
    done = succeeded(
        "protect", "mine.csv", "--public", "public.csv", "--owner", "patient", "--kappa", 1, "--out", "copies"
    )
    assert "all records of one owner together (at most 3) at most 5.08 nats" in done.out  # with three labels


def test_equal_records_of_several_owners_count_for_each(tables, tmp_path):
    rows = pd.read_csv("mine.csv")
    rows.loc[3, list("abcd")] = rows.loc[0, list("abcd")]  # p1's first is p0's first
    rows.to_csv("mine.csv", index=False)
    succeeded(
        "protect", "mine.csv", "--public", "public.csv", "--owner", "patient", "--target-leakage", 4, "--out", "copies"
    )
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert told["leakage"]["values"] <= 4
    assert 4 * told["channel"]["capacity"] <= 4  # four releases say something about either


def test_paths_name_the_owner_of_a_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, first in (("mine", 0), ("public", 100)):
        (tmp_path / name).mkdir()
        for row in range(40):
            pixels = np.random.default_rng(first + row).integers(0, 255, (4, 4), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"p{row // 2}_{row % 2}.png")
    words = ("protect", "mine", "--public", "public", "--target-leakage", 2, "--out", "copies")
    succeeded(*words, "--owner", "(p[0-9]+)_")
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert told["statement"]["group"] == 2
    assert told["leakage"]["values"] == pytest.approx(2 * told["channel"]["capacity"])
    for pattern, said in (
        ("p[0-9]+_", "has 0 groups"),
        ("(x)_", "is not in the path p0_0.png"),
        ("(", "is no regular"),
    ):
        assert said in called(*words[:-1], "other", "--owner", pattern).message


def test_owners_that_are_none_are_refused(tables):
    words = ("protect", "mine.csv", "--public", "public.csv", "--out", "copies")
    assert "has no column 'who'" in called(*words, "--owner", "who", "--kappa", 1).message
    assert (
        "what the other records of an owner give away"
        in called(*words, "--owner", "patient", "--target-mse", 0.3).message
    )
    rows = pd.read_csv("mine.csv")
    rows.loc[5, "patient"] = None
    rows.to_csv("mine.csv", index=False)
    assert "record 5 of mine.csv has none" in called(*words, "--owner", "patient", "--kappa", 1).message
