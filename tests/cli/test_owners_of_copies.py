"""``--owner`` of commands: targets and bounds are for all records of an owner together."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from calling import called, succeeded
from leakbound.commands.owners import owners_at
from leakbound.records.records import DatasetError
from leakbound.records.tables import load_owners

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


def test_owners_are_read_as_the_records_are(tables, tmp_path):
    """Spreadsheets write UTF-8 with a mark before the first column, here that of the owners. 007 is 7."""
    mine = pd.read_csv("mine.csv")
    numbers = ["007", "7", *[f"0{row // 2}" for row in range(100, 158)]]
    marked = mine.drop(columns="patient")
    marked.insert(0, "patient", numbers)
    marked.to_csv("mine.csv", index=False, encoding="utf-8-sig")
    words = ("--public", "public.csv", "--owner", "patient", "--kappa", 1, "--out", "copies")
    succeeded("protect", "mine.csv", *words)
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert told["statement"]["group"] == 2
    assert load_owners(tmp_path / "mine.csv", "patient", 60).tolist()[:4] == [0, 0, 1, 1]
    assert len({*owners_at(tmp_path / "mine.csv", "patient", 60)}) == 30
    marked.to_parquet("mine.parquet", index=False)
    for name in ("mine.csv", "mine.parquet"):
        with pytest.raises(DatasetError, match="'who' of owners; columns: 'patient', 'a', 'b', 'c', 'd', 'label'"):
            load_owners(tmp_path / name, "who", 60)


@pytest.mark.parametrize(("command", "further"), [("calibrate", ()), ("protect", ("--missing", "median"))])
def test_public_records_need_no_column_that_is_left_out(command, further, tables):
    """Whoever publishes records names no patients. What is left out is left out where it is, so both mean the same."""
    rows = pd.read_csv("public.csv").drop(columns="patient")
    rows.to_csv("anonymous.csv", index=False)
    pd.read_csv("mine.csv").assign(site=range(60)).to_csv("mine.csv", index=False)
    words = ("mine.csv", "--owner", "patient", "--exclude", "site", "--target-leakage", 4, *further)
    told = []
    for public in ("public.csv", "anonymous.csv"):
        copies = ("--out", public.removesuffix(".csv"), "--seed", 1) if command == "protect" else ("--json",)
        said = succeeded(command, *words, "--public", public, *copies).out
        told.append(said if command == "calibrate" else pd.read_csv(f"{copies[1]}/mine.csv"))
    assert told[0].equals(told[1]) if command == "protect" else told[0] == told[1]
    last = ("--out", "last") if command == "protect" else ()
    rows.drop(columns="d").to_csv("anonymous.csv", index=False)
    refused = called(command, *words, "--public", "anonymous.csv", *last)
    said = (
        "has 4 columns of values, the public records 3"
        if further
        else "shape (3,), mine.csv holds a table of shape (4,)"
    )
    assert said in refused.message
    if not further:
        refused = called(command, "public.csv", *words[1:], "--public", "mine.csv")
        assert "public.csv: has no column 'site' of values to leave out" in refused.message


def test_a_limit_of_each_copy_adds_up_over_the_records_of_an_owner(tables):
    done = succeeded(
        "protect", "mine.csv", "--public", "public.csv", "--owner", "patient", "--kappa", 1, "--out", "copies"
    )
    assert "all records of one owner together (at most 3) at most 5.08 nats" in done.out  # with three labels


def test_what_is_said_of_owners_is_what_was_planned(tables, tmp_path):
    """Without ``--uses`` the statement once spoke of twelve planned uses and several channels, a warning of records."""
    words = ("protect", "mine.csv", "--public", "public.csv", "--owner", "patient", "--target-leakage", 4)
    said = succeeded(*words, "--out", "copies")
    assert "planned  " not in said.out
    assert "the best linear estimate from all records of an owner is not computed" in said.out
    assert "records=" not in said.out + said.err
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert told["leakage"]["values"] == pytest.approx(4) == pytest.approx(told["planned"]["values"])
    assert (told["target"]["uses"], told["planned"]["uses"]) == (1, 1)
    said = succeeded(*words, "--uses", 2, "--out", "more").out
    assert "2 uses with fresh noise together: 4 nats by the values, 6.07945 with the label" in said  # 3 ln 2
    succeeded("ledger", "new", "uses.db")
    for out in ("one", "two", "three"):
        done = called(*words, "--uses", 2, "--ledger", "uses.db", "--out", out)
        assert done.code == 2 * (out == "three")
    assert "record 0 of 'train' has had its 2 planned uses, counted over all runs" in done.message


@pytest.mark.parametrize("of_several", [False, True], ids=["own records", "a record of two owners"])
def test_planned_uses_of_an_owner_end_whether_the_target_is_of_a_copy_or_of_all(of_several, tables, tmp_path):
    """With ``--kappa`` they never did: six calls of two planned ones stated 8.3 nats next to 4.6 that were planned."""
    if of_several:
        rows = pd.read_csv("mine.csv")
        rows.loc[3, list("abcd")] = rows.loc[0, list("abcd")]  # p1's first is p0's first
        rows.to_csv("mine.csv", index=False)
    words = ("mine.csv", "--public", "public.csv", "--owner", "patient", "--kappa", 1, "--uses", 2)
    succeeded("ledger", "new", "uses.db")
    for out in ("one", "two", "three"):
        done = called("protect", *words, "--ledger", "uses.db", "--out", out)
        assert done.code == 2 * (out == "three"), done.message
    told = json.loads((tmp_path / "two" / "protection.json").read_text())
    assert told["leakage"]["values"] <= told["planned"]["values"] * (1 + 1e-9)
    if not of_several:
        assert told["leakage"]["values"] == pytest.approx(told["planned"]["values"])
        assert "record 0 of 'train' has had its 2 planned uses, counted over all runs" in done.message
    assert (told["target"]["nats"], told["target"]["uses"]) == (1, 2)
    # The nats of all planned copies by the own records' moments are those that calibrate compares.
    own = json.loads(succeeded("calibrate", *words, "--shape", "natural", "--json").out)["shapes"][0]["own"]
    if not of_several:
        assert f"all planned copies reveal {own:g} nats" in succeeded("protect", *words, "--out", "other").out


def test_a_statement_names_as_many_records_as_owners_of_an_earlier_call_have(tables, tmp_path):
    """It once said *at most 1* where the ledger knew of three."""
    succeeded("ledger", "new", "uses.db")
    words = ("protect", "mine.csv", "--public", "public.csv", "--kappa", 1, "--uses", 30, "--ledger", "uses.db")
    succeeded(*words, "--owner", "patient", "--out", "one")
    succeeded(*words, "--exclude", "patient", "--out", "two")
    told = json.loads((tmp_path / "two" / "protection.json").read_text())["statement"]
    assert (told["unit"], told["group"]) == ("owner", 3)
    assert "all records of one owner together (at most 3)" in told["sentence"]


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


def test_records_that_differ_in_the_sign_of_zero_are_equal(tables, tmp_path):
    """As they are for the engine, which releases the record of either owner twice."""
    rows = pd.read_csv("mine.csv").astype({"a": float})
    rows.loc[0, "a"] = 0.0
    rows.loc[3, list("abcd")] = rows.loc[0, list("abcd")]
    rows.loc[3, "a"] = -0.0
    rows.to_csv("mine.csv", index=False)
    assert np.signbit(pd.read_csv("mine.csv")["a"][3])
    words = ("mine.csv", "--public", "public.csv", "--owner", "patient", "--target-leakage", 4, "--no-standardize")
    succeeded("protect", *words, "--out", "copies")
    told = json.loads((tmp_path / "copies" / "protection.json").read_text())
    assert 4 * told["channel"]["capacity"] <= 4


def test_columns_whose_names_run_into_those_of_their_labels_are_two(tables, tmp_path):
    """ "a b" with the label "c" and "a" with the label "b c" were one label in a ledger."""
    succeeded("ledger", "new", "uses.db")
    told = []
    for column, labels in (("is ill", ["no", "yes"]), ("is", ["ill no", "ill yes"])):
        for name in ("mine", "public"):
            rows = pd.read_csv(f"{name}.csv").drop(columns=["patient", "label"])
            rows.assign(**{column: np.resize(labels, len(rows))}).to_csv(f"{name}_of.csv", index=False)
        words = ("mine_of.csv", "--public", "public_of.csv", "--kappa", 1, "--uses", 2, "--label", column)
        succeeded("protect", *words, "--ledger", "uses.db", "--out", column)
        told.append(json.loads((tmp_path / column / "protection.json").read_text())["statement"]["labels"])
    assert told == pytest.approx([math.log(2), 2 * math.log(2)])


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
    rows.loc[2, "a"] = None
    rows.to_csv("mine.csv", index=False)
    dropping = ("--owner", "patient", "--kappa", 1, "--missing", "drop")
    assert "record 5 of mine.csv has none" in called(*words, *dropping).message  # its row of the file


def test_calibrate_states_for_an_owner_what_protect_states_and_leaves_the_column_out(tables):
    words = ("mine.csv", "--public", "public.csv", "--owner", "patient", "--target-leakage", 4)
    told = json.loads(succeeded("calibrate", *words, "--shape", "natural", "--json").out)
    (row,) = told["shapes"]
    assert told["releases_of_an_owner"] == row["statement"]["group"] == 3
    assert row["statement"]["unit"] == "owner"
    assert 0.9 * 4 < row["values"] <= 4
    assert row["values"] == pytest.approx(3 * row["capacity"])
    assert row["record"] == pytest.approx(row["values"] + 3 * math.log(2))
    assert row["mse"] is None
    succeeded("protect", *words, "--out", "copies")
    with open("copies/protection.json", encoding="utf-8") as file:
        assert json.load(file)["statement"]["values"] == pytest.approx(row["values"])
    said = succeeded("calibrate", *words).out
    assert said.count("about all records of one owner together (at most 3) at most") == 4
    assert "records of one owner may depend on each other" in said


@pytest.mark.parametrize("command", ["calibrate", "protect"])
@pytest.mark.parametrize("pictures", [False, True])
def test_an_array_of_a_file_names_the_owner_of_each_record(command, pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    labels = np.arange(60) % 2
    for name, first in (("public", 100), ("mine", 0)):
        draw = np.random.default_rng(first)
        values = draw.integers(0, 256, (60, 4, 4), dtype=np.uint8) if pictures else draw.normal(size=(60, 6))
        whose = np.repeat([f"{name}{number}" for number in range(20)], 3)
        np.savez(f"{name}.npz", records=values, labels=labels, patient=whose)
    words = (command, "mine.npz", "--public", "public.npz", "--target-leakage", 3)
    words = (*words, *(("--out", "copies") if command == "protect" else ("--shape", "natural")))
    assert "has no array 'who' of owners; it holds records, labels, patient" in called(*words, "--owner", "who").message
    said = succeeded(*words, "--owner", "patient").out
    assert "about all records of one owner together (at most 3) at most" in said
    np.savez("mine.npz", records=values, labels=labels, patient=whose[:7])
    words = tuple(word if word != "copies" else "others" for word in words)
    assert "texts, one for each of the 60 records" in called(*words, "--owner", "patient").message


def test_an_array_without_a_name_says_how_owners_are_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "public"):
        np.save(f"{name}.npy", np.random.default_rng(len(name)).normal(size=(60, 6)))
    words = ("calibrate", "mine.npy", "--public", "public.npy", "--kappa", 1, "--owner", "patient")
    assert "numpy.savez('mine.npz', records=..., labels=..., patient=...)" in called(*words).message


def test_every_label_of_a_record_is_counted(tables, tmp_path):
    """Of equal rows each different label counts, also for an owner, and labels of another column in one ledger."""
    frame = pd.read_csv("mine.csv").drop(columns="patient")
    frame = pd.concat([frame, frame[:10]], ignore_index=True)
    frame["label"] = np.resize(["a", "b"], len(frame))
    frame.loc[len(frame) - 10 :, "label"] = np.where(frame["label"][:10] == "a", "b", "a")
    frame["outcome"] = frame["label"]
    for name in ("mine.csv", "public.csv"):
        rows = (
            frame
            if name == "mine.csv"
            else pd.read_csv(name).drop(columns="patient").assign(outcome=np.resize(["a", "b"], 400))
        )
        rows.to_csv(name, index=False)
    succeeded("ledger", "new", "uses.db")
    words = ("mine.csv", "--public", "public.csv", "--kappa", 1)
    told = []
    for label, other, out in (
        ("label", "outcome", "first"),
        ("outcome", "label", "second"),
        ("label", "outcome", "third"),
    ):
        named = ("--label", label, "--exclude", other)
        succeeded("protect", *words, *named, "--uses", 3, "--ledger", "uses.db", "--out", out)
        told.append(json.loads((tmp_path / out / "protection.json").read_text())["statement"]["labels"])
        said = succeeded("calibrate", *words, *named, "--shape", "natural", "--json").out
        assert json.loads(said)["shapes"][0]["statement"]["labels"] == pytest.approx(2 * math.log(2))
    assert told == pytest.approx([2 * math.log(2), 4 * math.log(2), 4 * math.log(2)])
