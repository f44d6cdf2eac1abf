import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leakbound.papers.pmidp.clients import split_records

LABELS = np.repeat(np.arange(10), 100)


@given(st.integers(1, 20), st.integers(1, 50), st.sampled_from([None, 0.05, 0.5, 100.0]), st.integers(0, 1000))
def test_clients_hold_equally_many_records_and_share_none(n_clients, records, concentration, seed):
    held = split_records(LABELS, n_clients, records, np.random.default_rng(seed), concentration)
    assert held.shape == (n_clients, records)
    assert len(np.unique(held)) == n_clients * records


def classes_of_clients(concentration) -> float:
    """Mean number of classes that a client has at least one record in twenty of."""
    held = split_records(LABELS, 10, 50, np.random.default_rng(0), concentration)
    counts = np.stack([np.bincount(LABELS[rows], minlength=10) for rows in held])
    return float((counts >= 2.5).sum(1).mean())


def test_small_concentrations_give_clients_few_classes_and_large_ones_all():
    few, some, all_ = (classes_of_clients(concentration) for concentration in (0.05, 0.5, 1000.0))
    assert few < some < all_
    assert few < 4
    assert all_ > 8


def test_uniform_split_gives_each_client_every_class():
    held = split_records(LABELS, 2, 500, np.random.default_rng(0))
    assert all(len(np.unique(LABELS[rows])) == 10 for rows in held)


def test_equal_seeds_give_equal_splits_and_others_do_not():
    one, same, other = (split_records(LABELS, 5, 20, np.random.default_rng(s), 0.5) for s in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


def test_a_skewed_split_may_use_up_all_records():
    held = split_records(LABELS, 10, 100, np.random.default_rng(0), 0.01)
    assert sorted(held.ravel()) == list(range(1000))


def test_more_records_than_there_are_is_refused_with_numbers():
    with pytest.raises(ValueError, match="20 clients with 51 records each need 1020 members, there are 1000"):
        split_records(LABELS, 20, 51, np.random.default_rng(0))


def test_a_concentration_must_be_positive():
    with pytest.raises(ValueError, match=r"concentration = 0\.0"):
        split_records(LABELS, 2, 5, np.random.default_rng(0), 0.0)
