"""Folders of class folders: what is read of them, and what is refused by the name of the file."""

import os
import re
import shutil

import numpy as np
import pytest
from PIL import Image

from leakbound import storage
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, prepare
from leakbound_lab.datasets.class_folders import read_folders
from leakbound_lab.datasets.originals import describe_originals, original_hashes

MINE = DatasetConfig(reader="folders", members=10, pool=40, test=10, aux=10)


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """60 grey images of 8×8 in three classes, one of them WebP without loss; image i holds the value i everywhere."""
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    home = tmp_path / "mine"
    for number in range(60):
        folder = home / ("owl", "cat", "dog")[number % 3]
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{number:02}.{'webp' if number == 7 else 'png'}"
        Image.fromarray(np.full((8, 8), number, np.uint8)).convert("RGB").save(path, lossless=True)
    return home


def test_classes_are_the_sorted_folders_and_images_keep_their_pixels(mine):
    raw = read_folders("mine", MINE)
    assert (raw.classes, raw.test) == (("cat", "dog", "owl"), None)
    numbers = raw.train.decode(np.arange(60))[:, 0, 0, 0]
    assert sorted(numbers) == list(range(60))
    assert np.array_equal(raw.train.labels, (numbers.astype(int) + 2) % 3)


def test_a_configuration_takes_them_with_one_folder_or_two(mine):
    alone = prepare("mine", MINE, 0)
    assert (len(alone.pool), len(alone.test), len(alone.aux), alone.colors) == (40, 10, 10, 3)
    mine.rename(mine.with_name("mine_train"))
    shutil.copytree(mine.with_name("mine_train"), mine.with_name("mine_test"))
    for path in mine.with_name("mine_test").glob("*/*.png"):
        Image.fromarray(np.full((8, 8, 3), 100 + int(path.stem), np.uint8)).save(path)
    both = prepare("mine", MINE.model_copy(update={"pool": 50, "test": 60}), 0)
    assert (len(both.pool), len(both.test)) == (50, 59)  # the file .webp, as in training, is left out
    shutil.rmtree(mine.with_name("mine_test") / "cat")
    with pytest.raises(DatasetError, match="only one has the class 'cat'"):
        prepare("mine", MINE, 0)


def test_paths_name_the_owners_of_both_folders(mine):
    """The last digit of a file's name is its owner, and both folders have pictures of the same ten."""
    owned = MINE.model_copy(update={"owner": "([0-9])[.]"})
    raw = read_folders("mine", owned)
    numbers = raw.train.decode(np.arange(60))[:, 0, 0, 0].astype(int) % 10
    assert len({*zip(numbers.tolist(), raw.owners.tolist(), strict=True)}) == len({*raw.owners.tolist()}) == 10
    with pytest.raises(DatasetError, match=re.escape("'p([0-9])' is not in the path cat/01.png of")):
        read_folders("mine", MINE.model_copy(update={"owner": "p([0-9])"}))
    mine.rename(mine.with_name("mine_train"))
    shutil.copytree(mine.with_name("mine_train"), mine.with_name("mine_test"))
    both = read_folders("mine", owned)
    assert np.array_equal(both.owners, both.test_owners)
    assert np.array_equal(both.owners, raw.owners)


def test_originals_are_known_by_names_and_bytes(mine, tmp_path):
    record = tmp_path / "record.json"
    storage.write_json(record, {"originals": describe_originals("mine", MINE)})
    before = original_hashes("mine", MINE, record)
    os.utime(mine / "cat" / "01.png")
    (mine / ".hidden").write_bytes(b"x")
    assert original_hashes("mine", MINE, record) == before
    shutil.move(mine / "cat" / "01.png", mine / "dog" / "01.png")
    moved = original_hashes("mine", MINE, record)
    assert moved.keys() == before.keys() == {"mine"}
    assert moved != before


def broken(home, name, content):
    (home / name).parent.mkdir(exist_ok=True)
    (home / name).write_bytes(content)


def piped(home):
    (home / "cat" / "01.png").unlink()
    os.mkfifo(home / "cat" / "01.png")


def linked(home, name):
    """The same content, outside: beside the folder, whose name begins as its own does."""
    shutil.move(home / name, away := home.with_name("mine of others"))
    (home / name).symlink_to(away)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda home: broken(home, "cat/01.png", b"GIF89a"), r"cat/01.png: the image cannot be decoded"),
        (lambda home: broken(home, "cat/notes.txt", b"x"), r"cat/notes.txt: is no image file"),
        (lambda home: broken(home, "00.png", b"x"), r"mine/00.png: lies next to the class folders"),
        (lambda home: (home / "cat" / "kitten.png").mkdir(), r"kitten.png: is no image.* classes, name .*mine/cat\."),
        (lambda home: (home / "ant").mkdir(), r"mine/ant: is a class without images"),
        (lambda home: linked(home, "cat"), r"mine/cat: is a link out of .*mine"),
        (lambda home: (home / "cat" / "x.parquet").touch(), r"x.parquet: is no image file.* whose shards"),
        (lambda home: linked(home, "cat/01.png"), r"cat/01.png: is a link out of .*mine. Put its target"),
        (lambda home: (home / "cat" / "a.png").symlink_to(home), r"cat/a.png: is a link out of .*mine"),
        (lambda home: (home / "cat" / "a.png").symlink_to("a.png"), r"cat/a.png: is no image file"),
        (lambda home: (home / "a\nb").mkdir(), r"holds the name 'a\\nb', which cannot be printed"),
        (lambda home: shutil.rmtree(home), r"mine: there is no such folder"),
        (lambda home: [shutil.rmtree(home / one) for one in ("cat", "dog", "owl")], r"mine: has no subfolders"),
        (lambda home: Image.new("RGB", (9, 8)).save(home / "cat" / "01.png"), r"8×9 with 3 colors, but that of .*png"),
        (piped, r"cat/01.png: is no image file"),
    ],
)
def test_what_is_no_folder_of_class_folders_is_refused_by_name(mine, change, words):
    change(mine)
    with pytest.raises(DatasetError, match=words):
        prepare("mine", MINE.model_copy(update={"pool": 39}), 0)


def test_links_within_a_folder_and_a_link_to_the_folder_itself_are_followed(mine):
    before = prepare("mine", MINE, 0)
    shutil.move(mine, mine.with_name("elsewhere"))
    mine.symlink_to("elsewhere")
    shutil.move(mine / "cat" / "01.png", mine / "cat" / ".01.png")
    (mine / "cat" / "01.png").symlink_to(".01.png")
    assert np.array_equal(prepare("mine", MINE, 0).pool.images, before.pool.images)


@pytest.mark.parametrize("setting", [{"source": "hub"}, {"label": "smiling"}])
def test_settings_without_effect_on_folders_are_refused(mine, setting):
    with pytest.raises(DatasetError, match=rf"datasets.mine.{next(iter(setting))} = "):
        prepare("mine", MINE.model_copy(update=setting), 0)
