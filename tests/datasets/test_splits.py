"""Splits are disjoint, stratified and a function of the seed; prepared images are on the stated scale."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from images import gathered, repooled
from leakbound.storage import DamagedFileError, read_arrays, write_arrays
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, ImageDataset, RawDataset, Records, Split, prepare
from leakbound_lab.datasets.records import gather_copies
from leakbound_lab.datasets.splits import draw, stratified_order
from leakbound_lab.registries import DATASETS
from leakbound_lab.steps.inputs import read_dataset

SMALL = DatasetConfig(members=40, validation=20, pool=120, test=60, aux=50)


def raw_dataset(train: int = 300, test: int | None = 120, classes: int = 5) -> RawDataset:
    def records(count: int) -> Records:
        return Records("made up", np.arange(count) % classes, lambda rows: rows.reshape(-1, 1, 1, 1))

    return RawDataset(tuple("abcdefgh"[:classes]), records(train), None if test is None else records(test))


def labelled(labels: np.ndarray, **settings) -> ImageDataset:
    """Blank images that differ in one pixel, with labels."""
    images = np.zeros((len(labels), 1, 32, 32), np.float32)
    images[:, 0, 0, 0] = np.arange(len(labels))
    return gathered(Split(images, labels), **settings)


@given(records=st.integers(150, 400), test=st.integers(20, 90), size=st.integers(30, 50), seed=st.integers(0, 2**31))
def test_pool_attackers_and_test_records_never_overlap(records, test, size, seed):
    drawn = draw("x", raw_dataset(records, test), DatasetConfig(pool=size, aux=size), seed)
    assert len(np.unique(np.concatenate([drawn.pool, drawn.aux]))) == 2 * size
    assert sorted(drawn.test) == list(range(test))
    drawn = draw("x", raw_dataset(records, None), DatasetConfig(pool=size, test=size, aux=size), seed)
    assert len(np.unique(np.concatenate([drawn.pool, drawn.aux, drawn.test]))) == 3 * size


def test_pool_is_all_that_is_left_and_a_fifth_goes_to_a_test_split_where_there_is_none():
    drawn = draw("x", raw_dataset(), DatasetConfig(aux=30), 0)
    assert sorted(np.concatenate([drawn.pool, drawn.aux])) == list(range(300))
    drawn = draw("x", raw_dataset(200, None), DatasetConfig(aux=30), 0)
    assert (len(drawn.pool), len(drawn.aux), len(drawn.test)) == (130, 30, 40)


def test_every_split_has_equally_frequent_classes_equally_often():
    raw = raw_dataset()
    drawn = draw("x", raw, DatasetConfig(pool=50, test=20, aux=35), 3)
    for rows, each in ((drawn.pool, 10), (drawn.test, 4), (drawn.aux, 7)):
        assert np.bincount(raw.train.labels[rows]).tolist() == [each] * 5


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=6), share=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_every_beginning_of_the_order_holds_classes_in_proportion(counts, share, seed):
    labels = np.repeat(np.arange(len(counts)), counts)
    order = stratified_order(labels, np.random.default_rng(seed))
    assert sorted(order) == list(range(len(labels)))
    taken = round(share * len(labels))
    held = np.bincount(labels[order[:taken]], minlength=len(counts))
    slack = 1 + len(counts) * np.array(counts) / sum(counts)
    assert np.all(np.abs(held - taken * np.array(counts) / sum(counts)) <= slack)


def test_a_larger_pool_keeps_the_records_of_a_smaller_one():
    few = draw("x", raw_dataset(), DatasetConfig(pool=40, aux=30), 0)
    many = draw("x", raw_dataset(), DatasetConfig(pool=80, aux=30), 0)
    assert set(few.pool) < set(many.pool)
    assert np.array_equal(np.sort(few.aux), np.sort(many.aux))


@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=4), share=st.floats(0.1, 0.5), seed=st.integers(0, 2**31),
    replica=st.integers(0, 20), stratified=st.booleans(),
)  # fmt: skip
def test_parts_of_a_replica_are_disjoint_and_of_the_sizes_of_the_drawing(counts, share, seed, replica, stratified):
    labels = np.repeat(np.arange(len(counts)), counts)
    members = int(share * len(labels))
    validation = min(5, len(labels) - 2 * members)
    dataset = labelled(labels, members=members, validation=validation, seed=seed, stratified=stratified)
    parts = dataset.parts(replica)
    assert [len(part) for part in astuple(parts)] == [members, members, validation]
    drawn = np.concatenate(astuple(parts))
    assert len(np.unique(drawn)) == len(drawn)
    assert np.isin(drawn, np.arange(len(labels))).all()
    for name, rows in (("members", parts.members), ("nonmembers", parts.nonmembers)):
        split = getattr(dataset, name)(replica)
        assert np.array_equal(split.images, dataset.pool.images[rows])
        assert np.array_equal(split.labels, labels[rows])


def test_parts_depend_on_seed_name_and_replica_alone():
    labels = np.arange(90) % 3
    dataset = labelled(labels, members=30, validation=12)
    first = dataset.parts(2)
    other_pixels = repooled(dataset, images=np.ones_like(dataset.pool.images))
    for same in (dataset, other_pixels, replace(dataset, test=dataset.aux, secret="other")):
        assert all(map(np.array_equal, astuple(same.parts(2)), astuple(first)))
    reseeded = labelled(labels, members=30, validation=12, seed=1)
    for other in (dataset.parts(1), replace(dataset, name="other").parts(2), reseeded.parts(2)):
        assert set(other.members) != set(first.members)


@pytest.mark.parametrize("stratified", [True, False])
def test_every_part_has_the_classes_of_the_pool_in_proportion_if_it_is_stratified(stratified):
    dataset = labelled(np.arange(200) % 4, members=80, validation=40, stratified=stratified)
    counts = [np.bincount(dataset.pool.labels[rows]).tolist() for rows in astuple(dataset.parts(0))]
    assert (counts == [[20] * 4, [20] * 4, [10] * 4]) is stratified


@pytest.mark.parametrize("stratified", [True, False])
def test_members_and_nonmembers_of_replicas_are_drawn_alike(stratified):
    # 4,000 replicas, 5 standard deviations of a share: a false alarm in 10,000 for the 2 × 60 records.
    dataset = labelled(np.repeat([0, 1, 2], (30, 20, 10)), members=20, validation=10, stratified=stratified)
    hits = np.zeros((2, 60))
    for replica in range(4000):
        parts = dataset.parts(replica)
        hits[0, parts.members] += 1
        hits[1, parts.nonmembers] += 1
    assert np.abs(hits / 4000 - 1 / 3).max() < 5 * np.sqrt(2 / 9 / 4000)


@given(records=st.integers(40, 3000), aux=st.none() | st.integers(10, 20), validation=st.none() | st.integers(10, 12))
def test_sizes_that_are_not_given_fill_the_records_there_are(records, aux, validation):
    sizes = DatasetConfig(aux=aux, validation=validation).sizes(records)
    assert sizes.aux == (records // 5 if aux is None else aux)
    assert sizes.pool + sizes.aux == records
    assert 0 <= sizes.pool - sizes.drawn <= (4 if validation is None and sizes.pool >= 90 else 1)
    assert sizes.validation == (max(sizes.members // 4, 10) if validation is None else validation)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DatasetConfig(pool=280, aux=30), ["pool = 280", "aux = 30", "300 images", "made up"]),
        (DatasetConfig(members=130, aux=30), ["members = 130", "validation = 32", "pool of 270", "300 images"]),
        (DatasetConfig(aux=290), ["members = 0", "aux = 290", "pool of 10"]),
        (DatasetConfig(test=121, aux=30), ["datasets.x.test = 121", "120 images"]),
    ],
)
def test_asking_for_more_than_there_is_names_both_numbers(config, words):
    with pytest.raises(DatasetError) as caught:
        draw("x", raw_dataset(), config, 0)
    for word in words:
        assert word in str(caught.value)


def test_equal_seeds_give_equal_bytes_and_other_seeds_or_names_do_not():
    first = prepare("digits", SMALL, 0).content_hash()
    assert prepare("digits", SMALL, 0).content_hash() == first
    assert prepare("digits", SMALL, 1).content_hash() != first
    assert prepare("more", SMALL.model_copy(update={"reader": "digits"}), 0).content_hash() != first


def test_prepared_digits_are_32_by_32_floats_between_minus_one_and_one():
    dataset = prepare("digits", SMALL, 0)
    assert dataset.pool.images.shape == (120, 1, 32, 32)
    assert (len(dataset.test), len(dataset.aux), dataset.colors) == (60, 50, 1)
    assert dataset.pool.images.dtype == np.float32
    assert dataset.pool.images.min() == -1
    assert 0.9 < dataset.pool.images.max() <= 1


def test_resized_digits_have_the_rank_61_of_their_original_pixels():
    dataset = prepare("digits", DatasetConfig(pool=1200, aux=100), 0)
    images = dataset.pool.images.reshape(1200, -1).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(np.cov(images.T, bias=True))
    assert np.sum(eigenvalues > 1e-9 * eigenvalues[-1]) == 61


def stored_as(dataset, arrays, **drawing):
    return ImageDataset.from_arrays("digits", dataset.classes, arrays, replace(dataset.drawing, **drawing))


def test_a_dataset_survives_its_file(tmp_path):
    dataset = prepare("digits", SMALL, 0)
    write_arrays(tmp_path / "digits.safetensors", dataset.arrays())
    again = stored_as(dataset, read_arrays(tmp_path / "digits.safetensors"))
    assert again.content_hash() == dataset.content_hash()
    assert again.classes == dataset.classes
    assert np.array_equal(again.parts(3).members, dataset.parts(3).members)


@pytest.mark.parametrize("words", [{"classes": "7"}, {"classes": "[]", "drawing": "3"}])
def test_arrays_with_words_of_another_form_are_no_dataset(tmp_path, words):
    write_arrays(tmp_path / "x.safetensors", {"x": np.zeros(2)}, {"name": "x", **words})
    with pytest.raises(DamagedFileError, match="so `leakbound step prepare` did not write it"):
        read_dataset(tmp_path / "x.safetensors")


@pytest.mark.parametrize(("setting", "word"), [({"source": "folder"}, "source"), ({"label": "loops"}, "label")])
def test_digits_refuse_settings_that_mean_nothing_to_them(setting, word):
    with pytest.raises(DatasetError, match=f"datasets.digits.{word} = "):
        prepare("digits", DatasetConfig(**setting), 0)


GREY = np.random.default_rng(0).uniform(0, 255, (300, 8, 8, 1))


@pytest.mark.parametrize(
    ("pixels", "labels", "says"),
    [
        (GREY[..., 0], np.arange(300) % 2, r"shape \(1, 8, 8\); pixels have the shape \(k, height, width, colors\)"),
        (GREY / 255, np.arange(300) % 2, "no pixel is above 1, .* 0 to 255"),
        (np.where(GREY > 1, GREY, np.nan), np.arange(300) % 2, "numbers from 0 to 255"),
        (lambda rows: GREY, np.arange(300) % 2, "decode was given .* rows and returned 300 images"),
        (GREY, np.arange(300) % 2 + 1, "row 1: column 'label' holds label 2, allowed is 0 to 1"),
    ],
)
def test_what_a_reader_returns_is_checked_before_anything_is_made_of_it(pixels, labels, says, monkeypatch):
    decode = pixels if callable(pixels) else pixels.__getitem__
    records = Records("made up", labels, decode)
    monkeypatch.setitem(DATASETS._entries, "made_up", lambda *_: RawDataset(("a", "b"), records, None))
    with pytest.raises(DatasetError, match=f"made up: .*{says}"):
        prepare("made_up", DatasetConfig(members=40, test=60, aux=50, side=8), seed=0)


def test_a_reader_returns_a_raw_dataset(monkeypatch):
    monkeypatch.setitem(DATASETS._entries, "made_up", lambda *_: GREY)
    with pytest.raises(DatasetError, match="its reader returned a ndarray, no leakbound"):
        prepare("made_up", SMALL, seed=0)


def registered(monkeypatch, values: np.ndarray, test: np.ndarray | None = None) -> None:
    """Records of eight values in two classes as the reader ``made_up``."""

    def records(held: np.ndarray) -> Records:
        return Records("made up", np.arange(len(held)) % 2, lambda rows: held[rows][:, None])

    raw = RawDataset(("a", "b"), records(values), None if test is None else records(test), columns=tuple("12345678"))
    monkeypatch.setitem(DATASETS._entries, "made_up", lambda *_: raw)


def held_by(*splits: np.ndarray) -> list[set[bytes]]:
    return [{record.tobytes() for record in images} for images in splits]


TABLE = DatasetConfig(members=60, validation=20, test=60, aux=50)


@pytest.mark.parametrize("stratified", [True, False])
def test_a_record_and_its_copies_are_in_one_part_of_the_data_and_of_each_replica(monkeypatch, caplog, stratified):
    caplog.set_level("INFO", "leakbound")
    values = np.random.default_rng(0).normal(size=(300, 8))
    values[200:] = values[np.random.default_rng(1).integers(0, 150, 100)]
    registered(monkeypatch, values)
    dataset = prepare("made_up", TABLE, 0, stratified=stratified)
    assert (len(dataset.pool), len(dataset.test), len(dataset.aux)) == (190, 60, 50)
    pool, test, aux = held_by(dataset.pool.images, dataset.test.images, dataset.aux.images)
    assert len(pool | test | aux) == len(pool) + len(test) + len(aux) == 200
    assert "datasets.made_up: 100 of 300 records are copies of others" in caplog.text
    again = ImageDataset.from_arrays("made_up", dataset.classes, dataset.arrays(), dataset.drawing)
    for replica in range(5):
        parts = astuple(again.parts(replica))
        assert [len(part) for part in parts] == [60, 60, 20]
        found = held_by(*(dataset.pool.images[part] for part in parts))
        assert len(set.union(*found)) == sum(map(len, found))


def test_a_copy_moves_two_records_and_no_other(monkeypatch):
    values = np.random.default_rng(0).normal(size=(300, 8))
    registered(monkeypatch, values)
    drawn, before = draw("made_up", DATASETS.get("made_up")("", TABLE), TABLE, 0), prepare("made_up", TABLE, 0)
    first, second = sorted((drawn.pool[3], drawn.test[5]))
    values[second] = values[first]
    after = prepare("made_up", TABLE, 0)
    pairs = [(getattr(before, name).images, getattr(after, name).images) for name in ("pool", "test", "aux")]
    moved = [int((one != other).any(axis=(1, 2, 3)).sum()) for one, other in pairs]
    assert moved in ([1, 1, 0], [1, 2, 0], [2, 1, 0])  # what was overwritten, and the two that were exchanged


def test_copies_of_training_records_are_left_out_of_an_original_test_split(monkeypatch):
    values = np.random.default_rng(0).normal(size=(200, 8))
    fresh = np.random.default_rng(1).normal(size=(30, 8))
    registered(monkeypatch, values, np.concatenate([values[:25], fresh]))
    dataset = prepare("made_up", TABLE.model_copy(update={"test": None, "members": 50}), 0)
    assert len(dataset.test) == 30
    assert dataset.copies is None
    registered(monkeypatch, values, values[:25])
    with pytest.raises(DatasetError, match="all test records are copies of records of"):
        prepare("made_up", TABLE.model_copy(update={"test": None, "members": 50}), 0)


@given(seed=st.integers(0, 2**31), sizes=st.lists(st.integers(1, 30), min_size=1, max_size=4), kinds=st.integers(1, 80))
def test_gathered_copies_are_a_permutation_of_equal_parts_or_refused(seed, sizes, kinds):
    generator = np.random.default_rng(seed)
    parts = np.split(generator.permutation(sum(sizes)), np.cumsum(sizes)[:-1])
    copies = generator.integers(0, kinds, sum(sizes))
    try:
        found = gather_copies(parts, copies, generator.integers(0, 2, sum(sizes)), "mine")
    except DatasetError:  # a record has more copies than any part has room
        assert np.bincount(copies).max() > 1
        return
    assert [*map(len, found)] == sizes
    assert sorted(np.concatenate(found)) == [*range(sum(sizes))]
    held = [{*copies[part].tolist()} for part in found]
    assert len(set.union(*held)) == sum(map(len, held))


class Tensor:
    """What frameworks return instead of an array."""

    def __init__(self, values):
        self.values = values

    def __len__(self):
        return len(self.values)


@pytest.mark.parametrize(
    ("decode", "words"),
    [
        (lambda rows: np.sort(rows).reshape(-1, 1, 1, 1), "in another order than asked for"),
        (lambda rows: Tensor(rows), r"decode returned a Tensor. Return a NumPy array"),
    ],
)
def test_a_reader_whose_records_come_in_another_order_or_form_is_refused(decode, words):
    """A reader that sorted its rows trained on shuffled labels: .13 for .92."""
    Records("made up", np.arange(9), lambda rows: rows.reshape(-1, 1, 1, 1)).check_order(np.array([7, 2, 5]))
    with pytest.raises(DatasetError, match=words):
        Records("made up", np.arange(9), decode).check_order(np.array([7, 2, 5]))
