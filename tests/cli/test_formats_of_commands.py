"""What commands say of files: warnings stand in the statement, useless copies are refused, units are the files'."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from calling import refusal, succeeded

DRAW = np.random.default_rng(0)
TARGET = ("--target-leakage", 4)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stated(*words):
    outcome = succeeded("protect", *words, *TARGET, "--out", "out")
    return json.loads(Path("out/protection.json").read_text()), outcome


def xrays(name, most):
    Path(name).mkdir()
    for number in range(20):
        levels = DRAW.integers(0, most, (8, 8), dtype=np.uint16)
        Image.fromarray(levels).save(f"{name}/{number}.tif")


def test_pictures_of_12_bits_that_were_read_as_black_are_refused_and_with_a_range_protected():
    """600 useless copies were written behind a warning."""
    xrays("mine", 4096)
    xrays("public", 4096)
    words = ("protect", "mine", "--public", "public", "--color", "gray", *TARGET, "--out", "out")
    assert "the files hold 16 bits, of which so few are used" in refusal(*words)
    assert not Path("out").exists()
    statement, _ = stated("mine", "--public", "public", "--range", 0, 4095)
    assert (statement["records"], statement["repeated"]) == (20, 0)


def test_warnings_stand_in_the_statement_without_numbers_of_private_records():
    levels = DRAW.integers(100, 110, (30, 8, 8), dtype=np.uint8)
    np.save("mine.npy", levels)
    np.save("public.npy", DRAW.integers(100, 110, (60, 8, 8), dtype=np.uint8))
    statement, outcome = stated("mine.npy", "--public", "public.npy", "--seed", 1)
    assert "all levels are between 100 and 109 of 255" in outcome.message
    assert "mine.npy: all levels lie within 32 of 256" in statement["warnings"]
    assert sum("THE NOISE IS SEEDED" in text for text in statement["warnings"]) == 1
    assert "100 and 109" not in json.dumps(statement)
    assert np.load("out/mine.npy").dtype == np.uint8


def test_what_the_plan_reveals_stands_beside_what_one_copy_does():
    np.save("mine.npy", DRAW.normal(size=(50, 6)))
    np.save("public.npy", DRAW.normal(size=(90, 6)))
    words = ("protect", "mine.npy", "--public", "public.npy", "--target-leakage", 20, "--uses", 10, "--out", "out")
    text = succeeded(*words).out
    assert "planned          10 uses with fresh noise together: 20 nats" in text
    assert json.loads(Path("out/protection.json").read_text())["planned"]["values"] == pytest.approx(20)


def borders(count):
    """Vectors whose first value hardly varies, as a pixel at the border, beside one that has ink there."""
    rows = DRAW.normal(size=(count, 8))
    rows[:, 0] *= 0.003
    return rows


def test_records_are_compared_in_the_units_of_the_files():
    """A value of .1 beside a deviation of .003 was called another unit, 30 of 4, by `calibrate` and by `protect`."""
    mine = borders(400)
    mine[0, 0] = 0.1
    for name, rows in (("mine", mine), ("public", borders(900))):
        np.save(f"{name}.npy", rows)
    words = ("mine.npy", "--public", "public.npy", "--standardize")
    succeeded("calibrate", *words, *TARGET)
    statement, _ = stated(*words)
    assert statement["records"] == 400
    np.save("mine.npy", 100 * mine)
    said = refusal("calibrate", *words, *TARGET)
    assert "in the units of the files; allowed is half the width more" in said


def adults(count, seed):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(40, 9, (count, 3)), columns=["age", "hours", "weight"])
    return frame.assign(work=np.resize(["private", "state"], count), income=np.resize(["<=50K", ">50K"], count))


def test_classes_are_named_with_their_counts_and_what_is_odd_about_them_is_said():
    frame = adults(200, 0)
    frame.loc[:9, "income"] = ">50K."
    frame["says"] = frame.income.map({"<=50K": 0.0, ">50K": 1.5, ">50K.": 2.5})
    for name, table in (("mine", frame), ("public", frame.assign(age=frame.age + 0.5))):
        table.to_csv(f"{name}.csv", index=False)
    words = ("mine.csv", "--public", "public.csv", "--label", "income", "--categories", "work")
    statement, outcome = stated(*words)
    assert "classes: '<=50K' 95, '>50K' 95, '>50K.' 10" in outcome.message
    assert "the classes '>50K' and '>50K.' differ in case, spaces or punctuation alone" in outcome.message
    assert "'<=50K' and" not in outcome.message
    assert "column 'says' says the label, one value for each class: leave it out, --exclude 'says'" in outcome.message
    assert statement["class_counts"] == {"<=50K": 95, ">50K": 95, ">50K.": 10}
    after = pd.read_csv("out/mine.csv")
    assert [*after.columns] == ["age", "hours", "weight", "work=private", "work=state", "income", "says"]
    assert (after.income == frame.income).all()


def test_missing_values_are_left_out_or_filled_in_and_the_statement_says_how_many():
    frame = adults(200, 0).drop(columns="work")
    frame.loc[[3, 4], "age"] = -999
    frame.to_csv("mine.csv", index=False)
    adults(300, 1).drop(columns="work").to_csv("public.csv", index=False)
    words = ("mine.csv", "--public", "public.csv", "--label", "income")
    assert "'age' holds -999, far from all others" in refusal("protect", *words, *TARGET, "--out", "out")
    statement, outcome = stated(*words, "--missing", "drop")
    assert statement["records"] == 198
    assert any("2 records, of which something is missing" in text for text in statement["assumed"])
    assert "2 records lack something and are left out" in outcome.message
    succeeded("protect", *words, "--missing", "median", *TARGET, "--out", "filled")
    statement = json.loads(Path("filled/protection.json").read_text())
    assert statement["records"] == 200
    said = "2 missing values are medians of the public records in front of the noise, like measurements"
    assert said in statement["assumed"]
    said = refusal(
        "protect", "public.csv", "--calibrate-to-own", "--label", "income", "--resize", 8, *TARGET, "--out", "o"
    )
    assert "--resize: public.csv holds a table" in said


def test_the_statement_says_which_missing_texts_are_a_category():
    for name, count, seed in (("mine.csv", 200, 0), ("public.csv", 300, 1)):
        frame = adults(count, seed)
        frame.loc[[3, 4], "work"] = None
        frame.to_csv(name, index=False)
    statement, _ = stated("mine.csv", "--public", "public.csv", "--label", "income", "--categories", "work")
    assert "a text that is missing is a category like others, in 'work'" in statement["assumed"]


def test_few_records_are_spoken_of():
    np.save("mine.npy", DRAW.normal(size=(30, 200)))
    np.save("public.npy", DRAW.normal(size=(40, 200)))
    words = ("calibrate", "mine.npy", "--public", "public.npy", *TARGET, "--shape", "natural")
    said = "40 records of 200 values do not show how else it is spread: if more records do, less noise is enough"
    assert said in succeeded(*words).out
    assert said in json.loads(succeeded(*words, "--json").out)["few_records"]
