"""Readers of Parquet folders and of the hub: what they read, and how they refuse what they cannot."""

import datasets
import huggingface_hub
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from leakbound.records.collection import read_collection
from leakbound.records.parquet_images import read_file
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, may_be_published, prepare
from leakbound_lab.datasets.images import HubSource, ImageReader
from leakbound_lab.datasets.pixels import resize
from leakbound_lab.datasets.splits import draw
from leakbound_lab.registries import DATASETS

PETS = DatasetConfig(reader="parquet", aux=10)
PINNED = DatasetConfig(revision="0123456789" * 4)  # of a folder in place of the hub, which has no commits


def test_a_folder_of_ones_own_is_read_by_its_name(pets):
    dataset = prepare("pets", PETS, 0)
    assert dataset.classes == pets.classes
    assert dataset.pool.images.shape == (50, 1, 32, 32)
    assert np.bincount(dataset.test.labels).tolist() == [10, 10, 10]
    assert np.bincount(np.concatenate([dataset.pool.labels, dataset.aux.labels])).tolist() == [30, 20, 10]


def test_images_of_32_by_32_keep_their_exact_pixels(pets):
    pixels = np.random.default_rng(0).integers(0, 256, (60, 32, 32, 3), dtype=np.uint8)
    pets.write("train", [pets.encoded(image) for image in pixels])
    pets.write("test", pets.images(12, (32, 32, 3), seed=1))
    dataset = prepare("pets", PETS, 0)
    assert dataset.colors == 3
    found = np.concatenate([dataset.pool.images, dataset.aux.images])
    found = np.rint((found + 1) * 127.5).astype(np.uint8).transpose(0, 2, 3, 1)
    assert {image.tobytes() for image in found} == {image.tobytes() for image in pixels}


def test_halving_averages_with_the_antialiased_triangle():
    ramp = np.tile(np.arange(64, dtype=np.float32), (64, 1))[None, :, :, None]
    ramp[0, :, 32:, 0] += 100
    row = (resize(ramp)[0, 0, 16] + 1) * 127.5
    assert row[8] == pytest.approx(16.5)  # a ramp stays a ramp, sampled at the middle of two pixels
    weights = np.array([1, 3, 3, 1]) / 8  # triangle of width 4 at distances 1.5, 0.5, 0.5, 1.5
    assert row[15] == pytest.approx(weights @ ramp[0, 16, 29:33, 0])


def test_only_images_that_are_drawn_are_decoded(pets):
    pets.write("train", [*pets.images(59), b"no image"])
    few = DatasetConfig(reader="parquet", pool=30, aux=10)
    raw = DATASETS.get("parquet")("pets", few)
    for seed in range(10):
        rows = draw("pets", raw, few, seed)
        if 59 in rows.pool or 59 in rows.aux:
            with pytest.raises(DatasetError, match="row 59"):
                prepare("pets", few, seed)
        else:
            assert len(prepare("pets", few, seed).pool) == 30


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (lambda pets: [pets.images(1)[0][:40]], r"pets_train.parquet: row 30: the image cannot be decoded"),
        (lambda pets: [None], "row 30: there is no image"),
        (lambda pets: pets.images(1, (9, 8)), r"9×8 with 1 color.* All images of a dataset must be alike"),
        (lambda pets: pets.images(1, (8, 8, 4)), "row 30: the image has mode 'RGBA'"),
    ],
)
def test_an_image_that_cannot_be_used_is_named_by_row(pets, images, says):
    pets.write("train", [*pets.images(30), *images(pets), *pets.images(29)])
    with pytest.raises(DatasetError, match=says):
        prepare("pets", PETS, 0)


@pytest.mark.parametrize(
    ("labels", "named", "says"),
    [
        ([0, 1, -1] + [2] * 57, True, r"pets_train.parquet: row 2: column 'label' holds label -1, allowed is 0 to 2"),
        ([0, 1] * 30, False, r"pets_test.parquet: row 2: column 'label' holds label 2, allowed is 0 to 1"),
        ([0.5] * 60, True, "row 0: column 'label' holds 0.5, which is no integer label"),
        ([0, 1, None] + [2] * 57, True, "row 2: column 'label' holds .* no integer label"),
        ([1, 2, 3] * 20, False, "but never 0"),
    ],
)
def test_a_label_that_is_no_class_is_named_by_row(pets, labels, named, says):
    pets.write("train", named=named, label=labels)
    with pytest.raises(DatasetError, match=says):
        prepare("pets", PETS, 0)


def test_a_damaged_file_is_named(pets):
    path = pets.folder / "pets_train.parquet"
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DatasetError, match=rf"{path}: cannot be read as Parquet"):
        prepare("pets", PETS, 0)


def test_a_file_without_rows_is_refused(pets):
    pets.write("train", [], label=np.array([], dtype=np.int64))
    with pytest.raises(DatasetError, match="has no images"):
        prepare("pets", PETS, 0)


def test_a_missing_label_column_lists_the_nearest(pets):
    pets.write("train", label=[0] * 60, Smiling=[1] * 60)
    with pytest.raises(DatasetError, match=r"no column 'Smilling'.*did you mean 'Smiling'"):
        prepare("pets", PETS.model_copy(update={"label": "Smilling"}), 0)


def test_training_and_test_images_with_different_colors_are_refused(pets):
    pets.write("train", pets.images(60, (8, 8, 3)))
    with pytest.raises(DatasetError, match=r"pets_test.parquet: images have 1 color planes.*have 3"):
        prepare("pets", PETS, 0)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["owl", "cat"] * 30, ("cat", "owl")),
        (pd.Categorical(["owl", "cat"] * 30, ["owl", "dog", "cat"]), ("cat", "owl")),
        ([1.0, 0.0] * 30, ("0", "1")),
    ],
)
def test_labels_are_names_or_floats_as_tables_take_them(pets, labels, classes):
    path = pets.write("train", named=False, label=labels)
    found, records = read_file(path, "label")
    assert (found, records.labels.tolist()) == (classes, [1, 0] * 30)


def test_all_shards_are_read_from_the_column_that_is_named(pets):
    import pyarrow.parquet as pq

    table = pq.read_table(pets.write("train")).rename_columns({"image": "img"})
    shards = [pets.folder / f"train-{number:05}-of-00002.parquet" for number in range(2)]
    for number, shard in enumerate(shards):
        pq.write_table(table[30 * number : 30 * number + 30], shard)
    whole = read_collection(pets.folder / "pets_train.parquet")
    found = read_collection(shards[1], image="img")
    assert np.array_equal(found.values, whole.values)
    assert np.array_equal(found.labels, whole.labels)
    with pytest.raises(DatasetError, match=r"no column 'image'.*img.* by --image"):
        read_collection(shards[0])
    shards[0].unlink()
    with pytest.raises(DatasetError, match=r"train-00000-of-00002\.parquet"):
        read_collection(shards[1], image="img")


def test_images_in_the_wrong_place_are_refused(pets):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"img": [b""], "label": [0]}), pets.folder / "pets_train.parquet")
    with pytest.raises(DatasetError, match="has no column 'image'; known: img, label"):
        prepare("pets", PETS, 0)
    pq.write_table(pa.table({"image": [1.0], "label": [0]}), pets.folder / "pets_train.parquet")
    with pytest.raises(DatasetError, match="column 'image' is double, expected is struct<bytes"):
        prepare("pets", PETS, 0)


PEOPLE = PETS.model_copy(update={"owner": "person"})


def test_all_pictures_of_an_owner_are_in_one_part_and_test_pictures_of_training_owners_are_left_out(pets):
    """Twenty owners of three training pictures each; ten test pictures are theirs, and twenty are of others."""
    whose = np.repeat([f"p{number}" for number in range(20)], 3).tolist()
    pets.write("train", pets.images(60), label=[0, 1, 2] * 20, person=whose)
    pets.write("test", pets.images(30, seed=1), label=[0, 1, 2] * 10, person=whose[:10] + ["q"] * 20)
    raw = DATASETS.get("parquet")("pets", PEOPLE)
    assert np.array_equal(raw.owners[::3], raw.owners[2::3])
    assert len({*raw.owners.tolist()}) == 20
    assert set(raw.test_owners[10:].tolist()).isdisjoint(raw.owners.tolist())
    dataset = prepare("pets", PEOPLE, 0)
    assert (dataset.unit, dataset.most, len(dataset.test)) == ("owner", (3, 3, 3), 20)
    for replica in range(3):
        parts = dataset.parts(replica)
        held = [{*dataset.owners[rows].tolist()} for rows in (parts.members, parts.nonmembers, parts.validation)]
        assert sum(map(len, held)) == len(set.union(*held))


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "pets_train.parquet: has no column 'person' of owners"),
        ({"person": [None] * 60}, "column 'person' is null; owners are whole numbers or texts"),
        ({"person": ["a"] * 59 + [None]}, "row 59: column 'person' names no owner"),
        ({"person": ["a"] * 58 + ["", "a"]}, "row 58: column 'person' names no owner"),
        ({"person": ["a"] * 60}, "records more are needed so that no owner is in two parts"),
    ],
    ids=["none", "empty", "gap", "blank", "one"],
)
def test_owners_of_pictures_that_cannot_be_are_refused(pets, columns, says):
    pets.write("train", label=[0, 1, 2] * 20, **columns)
    pets.write("test", pets.images(30, seed=1), label=[0, 1, 2] * 10, person=["q"] * 30)
    with pytest.raises(DatasetError, match=says):
        prepare("pets", PEOPLE.model_copy(update={"members": 10, "validation": 10, "pool": 40}), 0)


def test_an_owner_that_the_reader_does_not_know_is_refused():
    config = DatasetConfig(members=100, test=50, aux=200, side=8, owner="writer")
    with pytest.raises(DatasetError, match=r"digits\.owner = 'writer': its reader does not say whose a record is"):
        prepare("digits", config, 0)


def test_an_attribute_can_be_the_label(pets):
    pets.write("train", label=[0] * 60, Male=[1] * 20 + [0] * 40)
    pets.write("test", pets.images(12, seed=1), label=[0] * 12, Male=[True, False] * 6)
    dataset = prepare("pets", PETS.model_copy(update={"label": "Male"}), 0)
    assert dataset.classes == ("not_male", "male")
    assert np.concatenate([dataset.pool.labels, dataset.aux.labels]).sum() == 20


def test_without_a_folder_an_own_dataset_says_what_to_set(monkeypatch):
    monkeypatch.delenv("LEAKBOUND_DATA", raising=False)
    for config in (PETS, PETS.model_copy(update={"source": "folder"})):
        with pytest.raises(DatasetError, match=r"LEAKBOUND_DATA.*pets_train.parquet"):
            prepare("pets", config, 0)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub repository in a local folder, with the columns of the hub's CIFAR-10."""
    monkeypatch.delenv("LEAKBOUND_DATA", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["plane", "ship"])})
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    columns = {"img": [Image.fromarray(p) for p in pixels], "label": [0, 1] * 20}
    (tmp_path / "repository").mkdir()
    for split in ("train", "test"):
        datasets.Dataset.from_dict(columns, features).to_parquet(tmp_path / "repository" / f"{split}.parquet")
    return HubSource(str(tmp_path / "repository"), image="img")


def test_the_hub_gives_the_same_records_as_a_folder_of_the_same_files(hub, tmp_path, monkeypatch):
    raw = ImageReader("tiny", hub)("tiny", PINNED)
    assert raw.classes == ("plane", "ship")
    assert raw.train.labels.tolist() == [0, 1] * 20
    pixels = np.random.default_rng(0).integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    assert np.array_equal(raw.train.decode(np.array([3, 39])), pixels[[3, 39]])

    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    for split in ("train", "test"):
        table = datasets.Dataset.from_parquet(str(tmp_path / "repository" / f"{split}.parquet"))
        table.rename_column("img", "image").to_parquet(tmp_path / f"tiny_{split}.parquet")
    folder = ImageReader("tiny", hub)("tiny", PINNED)
    assert folder.classes == raw.classes
    assert np.array_equal(folder.train.decode(np.arange(40)), raw.train.decode(np.arange(40)))


def test_the_hub_is_asked_if_the_settings_say_so_though_there_is_a_folder(hub, tmp_path, monkeypatch):
    monkeypatch.setenv("LEAKBOUND_DATA", str(tmp_path))
    assert ImageReader("tiny", hub)("tiny", PINNED.model_copy(update={"source": "hub"})).classes == ("plane", "ship")


def test_an_unreachable_hub_says_to_set_the_folder(hub, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(DatasetError, match=r"cannot be loaded from the Hugging Face hub.*set LEAKBOUND_DATA"):
        prepare("mnist", PINNED, 0)


@pytest.mark.parametrize(
    ("name", "allowed"), [("cifar10", True), ("digits", True), ("celeba", False), ("parquet", False)]
)
def test_readers_say_whether_their_images_may_be_published(name, allowed):
    assert may_be_published(DATASETS.get(name)) is allowed
    assert not may_be_published(lambda name, config: None)  # a reader that says nothing
