"""Private records among public ones: what is refused, and rows of few values, which are equal by chance."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from calling import called, succeeded
from leakbound import Capacity, Channel, ChannelEngine, GuaranteeError
from leakbound.engine.identity import Identity, PublicRecords

SHARES = (0.3, 0.5, 0.1, 0.6)
REASONS = (
    "either the channel was calibrated on records that it shall protect, and reveals their mean and covariance, or "
    "different records agree in all values: calibrate to others, leave these out of those to protect, or allow it by "
)


def answers(count: int, seed: int) -> np.ndarray:
    """Rows of four answers, yes or no, some of them rare."""
    return (np.random.default_rng(seed).random((count, 4)) < SHARES).astype(np.float32)


def half_silent(count: int, seed: int) -> np.ndarray:
    """Rows of which every other one is all zeros, and no others are equal."""
    draws = np.random.default_rng(seed)
    return (draws.normal(size=(count, 4)) * (draws.random((count, 1)) < 0.5)).astype(np.float32)


def categories(count: int, seed: int) -> np.ndarray:
    """Rows of three columns of twelve categories, of which some are equal."""
    return np.random.default_rng(seed).integers(0, 12, (count, 3)).astype(np.float32)


def contents(rows: np.ndarray) -> list[bytes]:
    return Identity.generate(double=False, seed=0).contents(torch.from_numpy(rows))


def refused(public: np.ndarray, private: np.ndarray) -> bool:
    try:
        PublicRecords(contents(public), "").refuse_many(contents(private))
    except GuaranteeError:
        return True
    return False


@pytest.mark.parametrize("draw", [answers, half_silent, categories])
@pytest.mark.parametrize(("count", "others"), [(1000, 1000), (500, 1000), (1000, 200)])
def test_equal_rows_of_others_are_refused_no_oftener_than_chance_allows(draw, count, others):
    """A quarter of honest pairs of tables of four answers was refused. Allowed are two of three standard deviations."""
    times = sum(refused(draw(count, seed), draw(others, seed + 500)) for seed in range(60))
    assert times <= 2


@pytest.mark.parametrize("draw", [half_silent, categories])
def test_rows_of_the_same_people_are_refused_where_others_are_equal_by_chance(draw):
    """Those of half silent records were hidden by the silent ones, which are equal anyway."""
    public = draw(400, 1)
    assert refused(public, public[::-1].copy())
    assert refused(public, np.concatenate([public[:300], draw(100, 2)]))
    assert refused(np.tile(public, (3, 1)), public)


def released(public: np.ndarray, private: np.ndarray) -> ChannelEngine:
    engine = ChannelEngine.for_data(public, Capacity(1.0), value_range=(-99, 99), accept_capacity=9.0)
    for _ in engine.protect(DataLoader(TensorDataset(torch.from_numpy(private)), batch_size=50)):
        pass
    return engine


def test_an_engine_takes_rows_that_others_have_by_chance(tmp_path):
    """Any of them was refused, as one of the calibration records."""
    engine = released(answers(400, 1), answers(300, 2))
    assert engine.uses["train"].min() > 0
    assert "equal ones, of which there are many among them, cannot show it" in str(engine)
    ChannelEngine.for_data(answers(400, 1), Capacity(1.0), accept_capacity=9.0).save(tmp_path / "engine.safetensors")
    with pytest.warns(UserWarning, match="counts from zero"):
        loaded = ChannelEngine.load(tmp_path / "engine.safetensors", accept_capacity=9.0)
    for _ in loaded.protect(DataLoader(TensorDataset(torch.from_numpy(answers(300, 2))), batch_size=50)):
        pass
    different = np.random.default_rng(3).normal(size=(2, 60, 4)).astype(np.float32)
    assert "cannot show it" not in str(released(*different))


def test_an_engine_says_what_it_saw_both_reasons_and_what_to_do():
    public, private = categories(700, 1)[:, [0, 1, 2, 0]], half_silent(300, 2)
    spread = np.random.default_rng(3).normal(size=(300, 4)).astype(np.float32)
    with pytest.raises(GuaranteeError) as error:
        released(public, public)
    seen = "256 of 256 records equal public ones, the first is record "
    assert str(error.value).startswith(seen)
    assert str(error.value).endswith(f", more often than they equal each other: {REASONS}calibrate_to_own=True")
    private[77] = spread[5]
    with pytest.raises(GuaranteeError) as error:
        released(spread, private)
    assert str(error.value) == f"record 77 equals a public one: {REASONS}calibrate_to_own=True"
    with pytest.raises(GuaranteeError, match="record 77 equals a public one: either"):
        released(np.tile(spread, (2, 1)), private)  # a table that stands twice in its file
    with pytest.raises(GuaranteeError) as error:
        Channel(Capacity(1.0), auxiliary=spread).fit(private)
    assert str(error.value) == f"record 77 equals a public one: {REASONS}auxiliary=None"


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Two tables of answers, and two of numbers that share one row."""
    monkeypatch.chdir(tmp_path)
    numbers, others = (np.random.default_rng(seed).normal(size=(count, 4)) for seed, count in ((1, 100), (2, 300)))
    others[5] = numbers[3]
    rows = {"mine": numbers, "public": others, "answers": answers(300, 2), "of_others": answers(400, 1)}
    for name, values in rows.items():
        pd.DataFrame(values, columns=list("abcd")).assign(label=np.arange(len(values)) % 2).to_csv(
            f"{name}.csv", index=False
        )


def test_calibrate_and_protect_refuse_the_same_records_by_the_same_sentence(tables):
    """``calibrate`` took a public table with one private row, which ``protect`` refused."""
    said = [
        called(*words, "--public", "public.csv", "--kappa", 1, "--out", out).message
        for words, out in (
            (("calibrate", "mine.csv", "--shape", "natural"), "c.safetensors"),
            (("protect", "mine.csv"), "c"),
        )
    ]
    assert said[0] == said[1].replace("protect --help", "calibrate --help").replace(
        "leakbound protect", "leakbound calibrate"
    )
    sentence = f"mine.csv and --public public.csv: record 3 equals a public one: {REASONS}"
    assert sentence + "--calibrate-to-own of protect, without --public" in said[0]


def test_calibrate_and_protect_take_rows_that_others_have_by_chance(tables):
    words = ("answers.csv", "--public", "of_others.csv", "--kappa", 1, "--accept-capacity", 2)
    told = json.loads(succeeded("calibrate", *words, "--shape", "natural", "--json").out)
    done = succeeded("protect", *words, "--out", "copies")
    with open("copies/protection.json", encoding="utf-8") as file:
        assert json.load(file)["statement"]["nats"] == told["shapes"][0]["statement"]["nats"]
    assert "equal ones, of which there are many among them, cannot show it" in done.out


def test_copies_of_few_values_say_that_no_number_covers_which_are_equal(tables):
    """Under 0.01 nats all answers are known, by how many people share a copy: the statement was *at most 0.01 nats*."""
    for name, rows in (("yes", answers(300, 2)), ("of_others", answers(400, 1))):
        frame = pd.DataFrame(rows[:, [0, 2]], columns=["smokes", "rare"])
        frame.assign(label="none", who=np.arange(len(rows))).to_csv(f"{name}.csv", index=False)
    words = ("yes.csv", "--public", "of_others.csv", "--kappa", 0.01, "--accept-capacity", 1)
    one, all_of_them = (*words, "--exclude", "who"), (*words, "--owner", "who")
    warning = "yes.csv: 296 of 300 records equal others and have the same noisy copy"
    told = succeeded("calibrate", *one, "--shape", "natural")
    assert "not covered: which records are equal" in told.out
    assert warning in told.message
    done = succeeded("protect", *one, "--out", "copies")
    assert "not covered: which records are equal" in done.out
    assert warning in done.message
    copies, clean, public = (pd.read_csv(f"{name}.csv") for name in ("copies/yes", "yes", "of_others"))
    seen = copies.groupby(["smokes", "rare"]).size().sort_values().index
    guess = dict(zip(seen, public.groupby(["smokes", "rare"]).size().sort_values().index, strict=True))
    pairs = copies[["smokes", "rare"]].itertuples(index=False, name=None)
    assert [guess[pair] for pair in pairs] == [*clean[["smokes", "rare"]].itertuples(index=False, name=None)]
    done = succeeded("protect", *all_of_them, "--out", "each")
    assert "not covered" not in done.out
    assert len(pd.read_csv("each/yes.csv").drop_duplicates()) > 250  # on the grid of secure noise a few agree
