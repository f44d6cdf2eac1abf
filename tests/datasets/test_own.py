from pathlib import Path

import numpy as np
import pytest

from leakbound.records.collection import Collection
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError
from leakbound_lab.datasets.images import read_parquet
from leakbound_lab.datasets.own import write_dataset


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))


def images(counts: list[int], seed: int = 0) -> Collection:
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    pixels = generator.integers(0, 256, (len(labels), 3, 8, 12), dtype=np.uint8)
    names = tuple(f"class {label}" for label in range(len(counts)))
    return Collection(Path("mine"), "folders", pixels, labels, names)


def test_every_image_comes_back_once_with_its_label(tmp_path):
    given = images([60, 40])
    train, test = write_dataset(tmp_path, "own", given, seed=1)
    assert (train, test) == (85, 15)
    raw = read_parquet("own", DatasetConfig())
    assert raw.classes == given.classes
    parts = [(part.labels, part.decode(np.arange(len(part)))) for part in (raw.train, raw.test)]
    held = [(int(label), one.tobytes()) for labels, held in parts for label, one in zip(labels, held, strict=True)]
    pictures = np.moveaxis(given.values, 1, -1)
    expected = [(int(label), one.tobytes()) for label, one in zip(given.labels, pictures, strict=True)]
    assert sorted(held) == sorted(expected)


def test_copies_of_an_image_are_in_one_file_that_only_its_owner_reads(tmp_path):
    given = images([60, 40])
    given.values[30:50] = given.values[10:30]
    assert write_dataset(tmp_path, "own", given, seed=1) == (85, 15)
    raw = read_parquet("own", DatasetConfig())
    train, test = ({bytes(one) for one in part.decode(np.arange(len(part)))} for part in (raw.train, raw.test))
    assert (len(train | test), len(train & test)) == (80, 0)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert tmp_path.stat().st_mode & 0o777 == 0o700


def test_classes_have_the_same_shares_in_both_splits(tmp_path):
    write_dataset(tmp_path, "own", images([200, 100, 20]), seed=0)
    assert np.bincount(read_parquet("own", DatasetConfig()).test.labels).tolist() == [30, 15, 3]


def test_the_parting_depends_on_the_seed_alone(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        write_dataset(tmp_path / name, "own", images([50, 50]), seed)
    a, b, c = ((tmp_path / name / "own_test.parquet").read_bytes() for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize(
    ("counts", "message"),
    [([50], "one class; .* needs at least 2"), ([50, 19], "'class 1' has 19 records; each needs at least 20")],
)
def test_what_cannot_be_parted_is_refused(tmp_path, counts, message):
    with pytest.raises(DatasetError, match=message):
        write_dataset(tmp_path, "own", images(counts), seed=0)
    assert not list(tmp_path.iterdir())
