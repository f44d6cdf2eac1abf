"""Canaries are fair pairs with wrong labels that change nothing else about a replica."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from images import gathered
from leakbound.storage import write_arrays
from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError, Split, prepare
from leakbound_lab.steps.inputs import read_dataset

PAIRS = 15


def made(canaries: int = PAIRS, seed: int = 0, classes: int = 4, members: int = 40):
    labels = np.arange(120) % classes
    images = np.zeros((120, 1, 32, 32), np.float32)
    images[:, 0, 0, 0] = np.arange(120)
    names = tuple("abcdefgh"[:classes])
    return gathered(Split(images, labels), members=members, validation=20, classes=names, seed=seed, canaries=canaries)


@given(seed=st.integers(0, 2**31), replica=st.integers(0, 9), count=st.integers(0, 20), classes=st.integers(2, 8))
def test_one_canary_of_each_pair_is_a_member_and_the_other_none(seed, replica, count, classes):
    dataset = made(count, seed, classes)
    parts, canaries = dataset.parts(replica), dataset.canaries(replica)
    assert canaries.rows.shape == canaries.labels.shape == (count, 2)
    assert len(np.unique(np.concatenate([parts.members, parts.nonmembers, parts.validation]))) == 100
    assert np.array_equal(parts.members[40 - count :], canaries.members)
    assert np.array_equal(parts.nonmembers[40 - count :], canaries.nonmembers)
    picked = np.take_along_axis(canaries.rows, canaries.inserted[:, None], 1)[:, 0]
    assert np.array_equal(picked, canaries.members)


@pytest.mark.parametrize("classes", [2, 4])
def test_exactly_the_canaries_have_wrong_labels_wherever_they_are(classes):
    dataset = made(classes=classes)
    canaries, parts = dataset.canaries(0), dataset.parts(0)
    for split, rows in ((dataset.members(0), parts.members), (dataset.nonmembers(0), parts.nonmembers)):
        assert np.array_equal(split.images[:, 0, 0, 0], rows)
        wrong = split.labels != dataset.pool.labels[rows]
        assert np.array_equal(np.flatnonzero(wrong), np.arange(40 - PAIRS, 40))
    assert np.array_equal(dataset.labels(0)[canaries.rows], canaries.labels)
    assert np.array_equal(dataset.wrong_labels(0)[canaries.rows], canaries.labels)


def test_canaries_leave_the_other_records_of_a_replica_where_they_were():
    without, having = made(0).parts(3), made().parts(3)
    assert np.array_equal(having.members[:-PAIRS], without.members[:-PAIRS])
    assert np.array_equal(having.validation, without.validation)
    both = np.concatenate([having.members, having.nonmembers])
    assert np.array_equal(np.sort(both), np.sort(np.concatenate([without.members, without.nonmembers])))


def test_replicas_have_canaries_of_their_own_that_others_do_not_change():
    first, second = made().canaries(0), made().canaries(1)
    assert not np.array_equal(first.rows, second.rows)
    assert not np.array_equal(first.inserted, second.inserted)
    fewer = made(PAIRS - 5).canaries(0)
    assert np.array_equal(fewer.inserted, first.inserted[: PAIRS - 5])


def test_coins_are_fair_and_wrong_labels_uniform_among_the_others():
    # Exceeded by a fair coin, and by each uniform label, once in 10,000 runs.
    drawn = [made(20, seed).canaries(0) for seed in range(100)]
    heads = np.concatenate([one.inserted for one in drawn])
    assert binom.cdf(min(heads.sum(), len(heads) - heads.sum()), len(heads), 0.5) > 5e-5
    truth = made().pool.labels
    shifts = np.concatenate([(one.labels - truth[one.rows]).ravel() % 4 for one in drawn])
    counts = np.bincount(shifts, minlength=4)
    assert counts[0] == 0
    assert np.all(np.abs(counts[1:] / len(shifts) - 1 / 3) < 3.9 * np.sqrt(2 / 9 / len(shifts)))


def test_prepared_dataset_keeps_its_canaries_and_hashes_them(tmp_path):
    config = DatasetConfig(members=100, test=60, aux=100, canaries=10)
    dataset = prepare("digits", config, 0)
    assert dataset.drawing.canaries == 10
    assert dataset.content_hash() != replace(dataset, drawing=replace(dataset.drawing, canaries=9)).content_hash()
    told = {"classes": json.dumps(dataset.classes), "drawing": json.dumps(asdict(dataset.drawing))}
    write_arrays(tmp_path / "digits", dataset.arrays(), {"name": "digits", **told})
    assert np.array_equal(read_dataset(tmp_path / "digits").canaries(2).rows, dataset.canaries(2).rows)


def test_more_canaries_than_half_of_the_members_are_refused_before_images_are_read():
    with pytest.raises(DatasetError, match=r"datasets\.digits\.canaries = 51: at most half of the 100 members"):
        prepare("digits", DatasetConfig(members=100, test=60, aux=100, canaries=51), 0)
