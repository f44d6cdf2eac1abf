"""``--statement`` and ``engine.write_statement``: one page, the same as JSON, and the line that a terminal shows."""

import datetime
import html
import json
import os
import re
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from calling import called, files_in, succeeded
from leakbound import Capacity, ChannelEngine, GuaranteeError, Leakage, storage
from leakbound.accounting.risk import bound_text, membership_bound, naming_bound
from leakbound.accounting.sheet import sheet_page

PAGE = (Path(__file__).parents[2] / "docs" / "privacy-officer.md").read_text(encoding="utf-8")
WORDS = ("protect", "mine <b>.npz", "--public", "public.npz", "--target-leakage", 3, "--owner", "patient")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Records of twenty people, three each, in a file whose name is markup."""
    monkeypatch.chdir(tmp_path)
    for name, first in (("mine <b>", 0), ("public", 9)):
        values = np.random.default_rng(first).normal(size=(60, 6))
        np.savez(f"{name}.npz", records=values, labels=np.arange(60) % 2, patient=np.repeat(np.arange(20), 3))
    return tmp_path


@pytest.mark.parametrize("seed", [(), ("--seed", 1)], ids=["secure", "seeded"])
def test_page_json_and_terminal_of_copies_say_the_same(seed, place):
    done = succeeded(*WORDS, "--out", "copies", "--statement", "sheet.html", *seed)
    facts, page = json.loads(Path("sheet.json").read_text()), Path("sheet.html").read_text()
    assert page == sheet_page(facts)
    (bound,) = facts["bounds"]
    assert f"leakage          {bound['sentence']}" in done.out
    assert html.escape(bound["sentence"]) in page
    written = json.loads(Path("copies/protection.json").read_text())
    assert {name: value for name, value in bound.items() if name != "of"} == written["statement"]
    assert facts["release"]["limit"] == "at most 3 nats about all records of one owner together by one copy of each"
    assert facts["assumptions"][1:] == written["assumed"]
    assert facts["release"]["digest"] == written["digest"]
    assert facts["data"] == {
        "name": "mine <b>.npz",
        "records": 60,
        "owners": 20,
        "digest": storage.file_hash(Path("mine <b>.npz")),
        "digest_of": "the file",
    }
    assert "mine &lt;b&gt;.npz: 60 records of 20 people" in page
    assert "<b>" not in page
    assert (facts["covered"], len(facts["risks"])) == ((True, 3) if not seed else (False, 0))
    assert all(stat.S_IMODE(os.stat(f"sheet.{kind}").st_mode) == 0o600 for kind in ("html", "json"))
    assert not [name for name in files_in(place / "copies") if "sheet" in name]


def test_a_page_is_never_part_of_the_copies_nor_in_the_place_of_another_file(place):
    for sheet, said in (("copies/sheet.html", "which is given away"), ("sheet.pdf", "name it .html")):
        assert said in called(*WORDS, "--out", "copies", "--statement", sheet).message
    Path("sheet.json").write_text("mine")
    assert "nothing is overwritten" in called(*WORDS, "--out", "copies", "--statement", "sheet.html").message
    assert not Path("copies").exists()
    assert Path("sheet.json").read_text() == "mine"


def test_a_loop_of_ones_own_states_what_it_has_released(tmp_path):
    public, private = (np.random.default_rng(seed).normal(size=(200, 4)).astype(np.float32) for seed in (0, 1))
    engine = ChannelEngine.for_data(public, Leakage(2.0, uses=4), value_range=(-9, 9))
    loader = engine.protect(DataLoader(TensorDataset(torch.from_numpy(private)), batch_size=50))
    with pytest.raises(GuaranteeError, match="nothing was released yet"):
        engine.write_statement(tmp_path / "early.html", data="patients")
    for _ in loader:
        pass
    day = datetime.date(2026, 3, 1)
    sees = [("The server", "uploads")]
    facts = engine.write_statement(tmp_path / "sheet.html", data="patients", sees=sees, date=day)
    assert json.loads((tmp_path / "sheet.json").read_text()) == json.loads(json.dumps(facts))
    assert facts["bounds"][0]["sentence"] == engine.leakage().statement(secure=True).sentence
    assert (facts["date"], facts["data"]["records"], facts["data"]["digest"]) == ("2026-03-01", 200, None)
    assert facts["release"]["sees"] == [["The server", "uploads"]]
    engine.write_statement(tmp_path / "again.html", data="patients", sees=sees, date=day)
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "sheet.html").read_bytes()


def test_a_page_counts_each_released_record_once(tmp_path, monkeypatch):
    """A subset of the data in two loaders was stated as all records, twice: fewer candidates are named more easily."""
    public, private = (np.random.default_rng(seed).normal(size=(200, 4)).astype(np.float32) for seed in (0, 1))
    for owner, people in ((None, None), (np.arange(200) // 5, 8)):
        engine = ChannelEngine.for_data(public, Capacity(0.5), value_range=(-9, 9))
        data = Subset(TensorDataset(torch.from_numpy(private)), range(40))
        again = TensorDataset(torch.from_numpy(private[:40]))
        for name, rows in (("train", data), ("again", again)):
            whose = None if owner is None else owner[:40]
            list(engine.protect(DataLoader(rows, batch_size=40), name=name, owner=whose))
        facts = engine.write_statement(tmp_path / f"{people}.html", data="patients")
        assert (facts["data"]["records"], facts["data"]["owners"]) == (40, people)
        assert facts["risks"][0]["guessing"] == 1 / (people or 40)
    monkeypatch.chdir(tmp_path)
    np.save("public.npy", public)
    np.save("mine.npy", np.concatenate([private[:30], private[:10]]))
    words = ("protect", "mine.npy", "--public", "public.npy", "--kappa", 1, "--out", "copies")
    succeeded(*words, "--statement", "copies.html")
    facts = json.loads(Path("copies.json").read_text())
    assert (facts["data"]["records"], facts["risks"][0]["guessing"]) == (40, 1 / 30)


def test_the_table_for_a_privacy_officer_has_the_bounds_rounded_up():
    rows = re.findall(r"^\| ([\d.]+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", PAGE, re.M)
    assert len(rows) == 6
    for nats, *shown in rows:
        exact = [naming_bound(float(nats), 100), naming_bound(float(nats), 10_000), membership_bound(float(nats))[0]]
        assert shown == [bound_text(100 * share) for share in exact]
