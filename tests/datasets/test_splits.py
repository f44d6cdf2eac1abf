"""Splits are disjoint, stratified and a function of the seed; prepared images are on the stated scale."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.config.data import DatasetConfig
from leakbound.datasets import DatasetError, ImageDataset, RawDataset, Records, prepare
from leakbound.datasets.splits import draw, stratified_order
from leakbound.storage import read_arrays, write_arrays

SMALL = DatasetConfig(members=100, test=60, aux=50)


def raw_dataset(train: int = 300, test: int | None = 120, classes: int = 5) -> RawDataset:
    def records(count: int) -> Records:
        return Records("made up", np.arange(count) % classes, lambda rows: rows.reshape(-1, 1, 1, 1))

    return RawDataset(tuple("abcdefgh"[:classes]), records(train), None if test is None else records(test))


@given(
    train=st.integers(100, 400), test=st.integers(20, 90), members=st.integers(10, 40), aux=st.integers(10, 40),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_members_and_attackers_records_never_overlap(train, test, members, aux, seed):
    drawn = draw("x", raw_dataset(train, test), DatasetConfig(members=members, aux=aux), seed)
    assert len(np.unique(np.concatenate([drawn.train, drawn.aux]))) == members + aux
    assert sorted(drawn.test) == list(range(test))


@given(pool=st.integers(150, 400), size=st.integers(10, 50), seed=st.integers(0, 2**31))
def test_the_three_splits_of_a_pool_never_overlap(pool, size, seed):
    drawn = draw("x", raw_dataset(pool, None), DatasetConfig(members=size, test=size, aux=size), seed)
    assert len(np.unique(np.concatenate([drawn.train, drawn.aux, drawn.test]))) == 3 * size


def test_members_are_all_that_the_attacker_leaves_if_no_size_is_given():
    drawn = draw("x", raw_dataset(), DatasetConfig(aux=30), 0)
    assert sorted(np.concatenate([drawn.train, drawn.aux])) == list(range(300))


def test_a_pool_without_test_size_gives_a_fifth_to_the_test_split():
    drawn = draw("x", raw_dataset(200, None), DatasetConfig(aux=30), 0)
    assert (len(drawn.train), len(drawn.aux), len(drawn.test)) == (130, 30, 40)


def test_every_split_has_equally_frequent_classes_equally_often():
    raw = raw_dataset()
    drawn = draw("x", raw, DatasetConfig(members=50, test=20, aux=35), 3)
    for rows, each in ((drawn.train, 10), (drawn.test, 4), (drawn.aux, 7)):
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


@pytest.mark.parametrize(("counts", "taken"), [((30, 20, 10), 24), ((20, 20, 20), 7)])
def test_every_record_is_equally_likely_to_be_a_member(counts, taken):
    # Shares of 4,000 draws; 5 standard deviations for 60 records are exceeded by chance 1 time in 30,000.
    labels = np.repeat([0, 1, 2], counts)
    hits = np.zeros(60)
    for seed in range(4000):
        hits[stratified_order(labels, np.random.default_rng(seed))[:taken]] += 1
    share = taken / 60
    assert np.abs(hits / 4000 - share).max() < 5 * np.sqrt(share * (1 - share) / 4000)


def test_more_members_keep_the_ones_that_fewer_members_had():
    few = draw("x", raw_dataset(), DatasetConfig(members=40, aux=30), 0)
    many = draw("x", raw_dataset(), DatasetConfig(members=80, aux=30), 0)
    assert set(few.train) < set(many.train)
    assert np.array_equal(np.sort(few.aux), np.sort(many.aux))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (DatasetConfig(members=280, aux=30), ["members = 280", "aux = 30", "300 images", "made up"]),
        (DatasetConfig(aux=300), ["aux = 300", "300 images"]),
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
    assert dataset.train.images.shape == (100, 1, 32, 32)
    assert (len(dataset.test), len(dataset.aux), dataset.colors) == (60, 50, 1)
    assert dataset.train.images.dtype == np.float32
    assert dataset.train.labels.dtype == np.int64
    assert dataset.train.images.min() == -1
    assert 0.9 < dataset.train.images.max() <= 1


def test_resized_digits_have_the_rank_61_of_their_original_pixels():
    dataset = prepare("digits", DatasetConfig(members=1200, aux=100), 0)
    images = dataset.train.images.reshape(1200, -1).astype(np.float64)
    eigenvalues = np.linalg.eigvalsh(np.cov(images.T, bias=True))
    assert np.sum(eigenvalues > 1e-9 * eigenvalues[-1]) == 61


def test_a_dataset_survives_its_file(tmp_path):
    dataset = prepare("digits", SMALL, 0)
    write_arrays(tmp_path / "digits.safetensors", dataset.arrays())
    again = ImageDataset.from_arrays("digits", dataset.classes, read_arrays(tmp_path / "digits.safetensors"))
    assert again.content_hash() == dataset.content_hash()
    assert again.classes == dataset.classes


def test_the_hash_sees_a_single_changed_label():
    dataset = prepare("digits", SMALL, 0)
    arrays = dataset.arrays()
    arrays["aux_labels"] = arrays["aux_labels"].copy()
    arrays["aux_labels"][0] ^= 1
    assert ImageDataset.from_arrays("digits", dataset.classes, arrays).content_hash() != dataset.content_hash()


def test_stored_arrays_that_lack_a_split_are_named():
    arrays = prepare("digits", SMALL, 0).arrays()
    del arrays["aux_images"]
    with pytest.raises(DatasetError, match="lack aux_images"):
        ImageDataset.from_arrays("digits", (), arrays)


@pytest.mark.parametrize(("setting", "word"), [({"source": "folder"}, "source"), ({"label": "loops"}, "label")])
def test_digits_refuse_settings_that_mean_nothing_to_them(setting, word):
    with pytest.raises(DatasetError, match=f"datasets.digits.{word} = "):
        prepare("digits", DatasetConfig(**setting), 0)
