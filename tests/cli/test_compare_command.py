"""`leakbound compare` up to the run, which takes minutes: what it writes, and what it refuses."""

import io
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy.io import savemat

from calling import refusal, succeeded
from images import class_folders
from leakbound.records.collection import png
from leakbound.records.records import first_copies
from leakbound_lab.commands import compare
from leakbound_lab.config.comparing import FEWEST_REPLICAS, MOST_REPLICAS
from leakbound_lab.config.reading import load
from leakbound_lab.datasets import prepare
from leakbound_lab.registries import DATASETS

ROOT = Path(__file__).parents[2]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    home = tmp_path / "clone"
    (home / "workflow").mkdir(parents=True)
    shutil.copy(ROOT / "workflow/Snakefile", home / "workflow")
    (home / "config").symlink_to(ROOT / "config")
    monkeypatch.setattr(compare, "_ROOT", home)
    monkeypatch.chdir(home)
    return home


@pytest.fixture
def unhurried(monkeypatch):
    """The first plan fits, so that what is tried is the records."""
    monkeypatch.setattr(compare, "_pace", lambda: 1.0)


def compared(*words: object) -> str:
    done = succeeded("compare", *words, "--no-run")
    return f"{done.out} {done.message}"


def test_embedded_digits_get_a_configuration_that_a_user_goes_on_from(clone):
    text = compared("digits", "--minutes", 10)
    target = clone / "results/compare_digits/compare.yaml"
    assert load(target).preset == "compare_digits"
    assert " of the 1797 records. Of the rest, " in text.partition(": the configuration of this comparison")[0]
    command = f"snakemake -j 2 --configfile {target.relative_to(clone)}"
    assert f"# in the root of the checkout by\n#   {command}" in target.read_text()


def test_more_minutes_are_more_replicas_and_a_slower_machine_has_fewer(clone, monkeypatch):
    assert 0.05 < compare._pace() < 50  # a step here, over one on the machine of the packaged times
    replicas = []
    for minutes, pace in ((1, 1.0), (60, 1.0), (60, 1000.0)):
        monkeypatch.setattr(compare, "_pace", lambda pace=pace: pace)
        name = f"for_{minutes}_{pace:g}"
        text = compared("digits", "--minutes", minutes, "--name", name)
        replicas.append(load(clone / f"results/{name}/compare.yaml").replicas)
        assert ("the fewest that can decide anything" in text) == (replicas[-1] == FEWEST_REPLICAS)
    assert replicas == [FEWEST_REPLICAS, MOST_REPLICAS, FEWEST_REPLICAS]


def test_class_folders_become_a_dataset_and_the_configuration_is_kept_when_called_again(clone, unhurried, tmp_path):
    folder = class_folders(tmp_path / "mine", ("cat", "dog"), 220, (16, 12, 3))
    before = os.environ.get("LEAKBOUND_DATA")
    compared(folder)
    target = clone / "results/compare_mine/compare.yaml"
    config = load(target)
    assert config.datasets["own"].side == 16
    assert (clone / "results/compare_mine").stat().st_mode & 0o077 == 0
    copies = sorted(path.name for path in (clone / "results/compare_mine/records").iterdir())
    assert copies == ["own_test.parquet", "own_train.parquet"]
    assert "LEAKBOUND_DATA=results/compare_mine/records snakemake" in target.read_text()
    target.write_text(target.read_text().replace("seed: 0", "seed: 7"))
    for words, other in (((folder, "--sees", "weights"), 'sees "uploads"'), ((tmp_path / "my/mine",), "records ")):
        assert f"results/compare_mine/compare.yaml is for {other}" in refusal("compare", *words, "--no-run")
    compared(folder)
    assert load(target).seed == 7
    assert os.environ.get("LEAKBOUND_DATA") == before


def few_rows(path: Path, count: int, kinds: Sequence[float] = (0, 1)) -> Path:
    generator = np.random.default_rng(0)
    table = pd.DataFrame(generator.normal(size=(count, 5)), columns=list("abcde"))
    table.assign(smoker=generator.integers(0, 2, count), kind=np.resize(kinds, count)).to_csv(path, index=False)
    return path


def test_a_table_becomes_a_dataset_with_noise_that_suits_its_columns(clone, unhurried, tmp_path):
    text = compared(few_rows(tmp_path / "rows.csv", 500), "--label", "kind", "--minutes", 1)
    assert "1 hold 0 and 1 (one-hot)" in text
    config = load(clone / "results/compare_rows/compare.yaml")
    dataset = config.datasets["own"]
    assert (dataset.reader, dataset.path, dataset.label) == ("table_shown", "own.csv", "kind")
    assert dataset.standardize
    assert dataset.pool + dataset.aux + dataset.test == 500
    assert "personalized" not in config.studies["comparison"].defenses
    assert config.illustrations["reconstructions"].dataset == "own"
    assert (clone / "results/compare_rows/records/own.csv").read_bytes() == (tmp_path / "rows.csv").read_bytes()


def test_what_cannot_be_compared_is_refused_before_anything_is_written(clone, unhurried, tmp_path):
    np.save(tmp_path / "table.npy", np.random.default_rng(0).normal(size=(400, 6)))
    for words, message in (
        ([str(tmp_path / "table.npy")], "arrays with labels, written by numpy.savez"),
        (["digits", "--members", "2000"], "--members 2000: digits leaves at most "),
        (["digits", "--resize", "64"], "--resize 64: a comparison computes covariances"),
        ([str(few_rows(tmp_path / "one.csv", 400, kinds=[0])), "--label", "kind"], "holds one class"),
        ([str(tmp_path / "none")], "there is no such file or folder"),
        (["digits", "--name", "Two Words"], "give lower-case letters, digits"),
    ):
        assert message in refusal("compare", *words, "--no-run")
    few = class_folders(tmp_path / "few", ("cat", "dog"), 100, (16, 12, 3))
    assert "a comparison needs 300 besides those for tests, 353 in all" in refusal("compare", few, "--no-run")
    assert not list(clone.glob("results/*/compare.yaml"))
    assert not list(clone.glob("results/*"))


def test_responses_to_labels_are_a_setting_of_the_dataset(clone, unhurried, tmp_path):
    words = (few_rows(tmp_path / "rows.csv", 500), "--label", "kind", "--minutes", 1, "--label-nats")
    said = refusal("compare", *words, 0.7, "--no-run")
    assert "--label-nats: nats = 0.7: a label of 2 classes holds at most" in said
    assert not list(clone.glob("results/*/compare.yaml"))
    compared(*words, 0.3)
    assert load(clone / "results/compare_rows/compare.yaml").datasets["own"].label_nats == 0.3


def test_what_takes_longer_than_planned_says_how_long_is_left():
    """Of 20 planned minutes 5 are done after 10: the 15 that are left take 30."""
    assert "--minutes 8: 10 have passed, at the pace so far about 30 minutes are left" in compare._overdue(
        8.0, 10.0, 20.0, 15.0
    )
    assert "no planned job is done yet" in compare._overdue(8.0, 10.0, 20.0, 20.0)


def test_the_plan_of_what_is_left_shrinks_with_the_files_that_are_there(clone, unhurried):
    compared("digits", "--minutes", 10)
    config = load(clone / "results/compare_digits/compare.yaml")
    config = config.model_copy(update={"catalogue": str(ROOT / "config/figures")})
    before = compare._planned_left(config, 2)
    for job in compare.job_list(config):
        if job.step == "train":
            for path in job.outputs.values():
                (clone / Path(path)).parent.mkdir(parents=True, exist_ok=True)
                (clone / Path(path)).touch()
    assert 0 < compare._planned_left(config, 2) < before


@pytest.mark.parametrize("form", ["tsv", "images"])
def test_formats_of_others_are_compared_as_well(clone, unhurried, tmp_path, form):
    draw = np.random.default_rng(0)
    if form == "tsv":
        table = pd.read_csv(few_rows(tmp_path / "rows.csv", 500))
        table.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
        compared(tmp_path / "mine.tsv", "--label", "kind", "--minutes", 1)
        copy = clone / "results/compare_mine/records/own.parquet"
        pd.testing.assert_frame_equal(pd.read_parquet(copy)[[*"abcde"]], table[[*"abcde"]])
    else:
        pixels = draw.integers(0, 256, (500, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / "mine.npz", x_train=pixels, y_train=np.arange(500)[:, None] % 2)
        compared(tmp_path / "mine.npz", "--minutes", 1)
        assert load(clone / "results/compare_mine/compare.yaml").datasets["own"].side == 8


def test_owners_of_a_table_or_of_arrays_are_those_of_the_configuration(clone, unhurried, tmp_path):
    draw = np.random.default_rng(0)
    values, whose, labels = draw.normal(size=(420, 4)), np.repeat(np.arange(210), 2), np.resize(["ill", "well"], 420)
    frame = pd.DataFrame(values, columns=list("abcd")).assign(patient=whose, label=labels)
    frame.to_csv(tmp_path / "people.csv", index=False)
    np.savez(tmp_path / "people.npz", records=values, labels=labels, patient=whose)
    for kind in ("csv", "npz"):
        compared(tmp_path / f"people.{kind}", "--owner", "patient", "--name", kind, "--minutes", 9999)
        dataset = load(clone / f"results/{kind}/compare.yaml").datasets["own"]
        assert (dataset.owner, dataset.path) == ("patient", f"own.{kind}")
        with open(clone / f"results/{kind}/records/own.{kind}", "rb") as copy:
            assert copy.read() == (tmp_path / f"people.{kind}").read_bytes()
    assert "nobody knows whose" in refusal("compare", "digits", "--owner", "x", "--name", "y", "--no-run")


@pytest.mark.parametrize("change", ["tsv", "exclude", "missing", "mat"])
def test_a_table_that_is_written_again_keeps_its_owners(clone, unhurried, tmp_path, change):
    """Whose each record is stays the same, also where columns or records are left out."""
    draw = np.random.default_rng(0)
    values, whose = draw.normal(size=(420, 4)), np.resize([f"p{number}" for number in range(140)], 420)
    labels = np.resize(["ill", "well"], 420)
    frame = pd.DataFrame(values, columns=list("abcd")).assign(patient=whose, label=labels)
    words = {"exclude": ["--exclude", "d"], "missing": ["--missing", "drop"]}.get(change, [])
    if change == "missing":
        frame.loc[[3, 77], "a"] = np.nan
    if change == "mat":
        savemat(
            tmp_path / "mine.mat",
            {"records": values, "labels": labels, "patient": np.unique(whose, return_inverse=True)[1]},
        )
    elif change == "tsv":
        frame.to_csv(tmp_path / "mine.tsv", sep="\t", index=False)
    else:
        frame.to_csv(tmp_path / "mine.csv", index=False)
    (source,) = tmp_path.glob("mine.*")
    compared(source, "--owner", "patient", "--name", change, "--minutes", 9999, *words)
    dataset = load(clone / f"results/{change}/compare.yaml").datasets["own"]
    assert (dataset.owner, dataset.path) == ("patient", "own.npz" if change == "mat" else "own.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEAKBOUND_DATA", str(clone / f"results/{change}/records"))
        raw = DATASETS.get("table")("own", dataset)
        assert prepare("own", dataset, 0).most.rows == 3
    kept = np.delete(np.arange(420), [3, 77]) if change == "missing" else np.arange(420)
    assert np.array_equal(
        first_copies(raw.owners[:, None]), first_copies(np.unique(whose, return_inverse=True)[1][kept, None])
    )
    columns = 3 if change == "exclude" else 4
    np.testing.assert_allclose(raw.train.decode(np.arange(len(kept)))[:, 0], values[kept, :columns])


@pytest.mark.parametrize("form", ["folders", "parquet", "npz"])
def test_owners_of_pictures_are_those_of_the_configuration(clone, unhurried, tmp_path, form):
    """A path, a column or an array names them. No owner has pictures in both files, and the files say whose each is."""
    draw = np.random.default_rng(0)
    pixels, whose = draw.integers(0, 256, (420, 8, 8), dtype=np.uint8), np.repeat(np.arange(140), 3)
    labels = np.resize([0, 1], 420)
    source, owner = tmp_path / "mine", "patient"
    if form == "folders":
        owner = "(p[0-9]+)_"
        for number, (picture, person, label) in enumerate(zip(pixels, whose, labels, strict=True)):
            (source / f"class {label}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(source / f"class {label}" / f"p{person}_{number}.png")
    elif form == "npz":
        source = tmp_path / "mine.npz"
        np.savez(source, records=pixels, labels=labels, patient=whose)
    else:
        source = tmp_path / "mine.parquet"
        encoded = [{"bytes": png(picture[None]), "path": None} for picture in pixels]
        pd.DataFrame({"image": encoded, "label": labels, "patient": whose}).to_parquet(source)
    compared(source, "--owner", owner, "--name", form, "--minutes", 9999)
    dataset = load(clone / f"results/{form}/compare.yaml").datasets["own"]
    assert (dataset.owner, dataset.reader) == ("owner", "parquet_shown")
    of = {
        picture.tobytes(): f"p{person}" if form == "folders" else str(person)
        for picture, person in zip(pixels, whose, strict=True)
    }
    parts = []
    for split in ("train", "test"):
        held = pd.read_parquet(clone / f"results/{form}/records/own_{split}.parquet")
        pictures = [np.asarray(Image.open(io.BytesIO(one["bytes"]))) for one in held["image"]]
        assert [of[picture.tobytes()].lstrip("p") for picture in pictures] == [one.lstrip("p") for one in held["owner"]]
        parts.append({*held["owner"]})
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 140
    assert len(parts[1]) == 21  # 15 % of the pictures, three of each
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEAKBOUND_DATA", str(clone / f"results/{form}/records"))
        prepared = prepare("own", dataset, 0)
    assert (prepared.unit, prepared.most) == ("owner", (3, 3, 3))
    assert (
        "is not in the path" in refusal("compare", source, "--owner", "(x)", "--name", "other", "--no-run")
        or form != "folders"
    )


def test_owners_of_many_records_leave_room_for_whole_ones(clone, unhurried, tmp_path):
    """Owners of up to nine records fill no part to the last one; the configuration asks for no more than fits."""
    draw = np.random.default_rng(0)
    whose = np.repeat(np.arange(200), draw.integers(1, 10, 200))
    frame = pd.DataFrame(draw.normal(size=(len(whose), 4)), columns=list("abcd"))
    frame.assign(patient=whose, label=np.resize(["ill", "well"], len(whose))).to_csv(tmp_path / "mine.csv", index=False)
    compared(tmp_path / "mine.csv", "--owner", "patient", "--minutes", 9999)
    config = load(clone / "results/compare_mine/compare.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LEAKBOUND_DATA", str(clone / "results/compare_mine/records"))
        dataset = prepare("own", config.datasets["own"], config.seed)
    assert dataset.most.rows == 9
    for replica in range(FEWEST_REPLICAS):
        parts = dataset.parts(replica)
        held = [{*dataset.owners[rows].tolist()} for rows in (parts.members, parts.nonmembers, parts.validation)]
        assert sum(map(len, held)) == len(set.union(*held))


def test_an_owner_of_too_many_records_is_refused_with_the_most_that_fit(clone, unhurried, tmp_path):
    """It was told that datasets.own.members is negative."""
    whose = np.concatenate([np.zeros(120, int), 1 + np.arange(300)])
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(420, 4)), columns=list("abcd"))
    frame = frame.assign(patient=whose, label=np.resize(["ill", "well"], 420))
    frame.to_csv(tmp_path / "mine.csv", index=False)
    said = refusal("compare", tmp_path / "mine.csv", "--owner", "patient", "--no-run")
    fit = int(re.search(r"120 of the \d+ records .* at most (\d+) may be", " ".join(said.split()))[1])
    assert 1 < fit < 120
    frame["patient"] = np.concatenate([np.zeros(fit, int), 1 + np.arange(420 - fit)])
    frame.to_csv(tmp_path / "mine.csv", index=False)
    compared(tmp_path / "mine.csv", "--owner", "patient", "--minutes", 9999)
