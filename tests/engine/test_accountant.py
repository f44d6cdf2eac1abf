"""The accountant against dense matrices, for any schedule of uses, channels and noise."""

import math

import numpy as np
import pytest
from gaussians import gaussian, precision
from hypothesis import given
from hypothesis import strategies as st

from leakbound import LeakageAccountant
from leakbound.channels import LeastPower, Natural, RateDistortion, White, population_moments

MOMENTS = population_moments(gaussian(500))
CHANNELS = [shape.calibrate(shape.decompose(MOMENTS), 2.0) for shape in (Natural, White, LeastPower, RateDistortion)]
NATURAL, WHITE = CHANNELS[:2]


def dense(looks: list[int]) -> float:
    """½ ln det(I + Σ Σ_i k_i P_i)."""
    total = sum(count * precision(channel) for channel, count in zip(CHANNELS, looks, strict=True))
    return 0.5 * np.linalg.slogdet(np.eye(4) + MOMENTS.covariance @ total)[1]


@given(st.lists(st.integers(0, 30), min_size=4, max_size=4))
def test_a_mixture_tells_what_its_added_precisions_tell_and_never_more_than_the_sum(looks):
    accountant = LeakageAccountant(MOMENTS)
    for channel, count in zip(CHANNELS, looks, strict=True):
        accountant.add(channel, count)
    account = accountant.account()
    assert account.joint == pytest.approx(dense(looks), rel=1e-7, abs=1e-9)
    assert account.linear == pytest.approx(2.0 * sum(looks), rel=1e-8)
    assert account.record == account.joint <= account.linear


def test_records_have_accounts_of_their_own():
    uses = np.array([[0, 1, 5], [2, 0, 5]])
    accountant = LeakageAccountant(MOMENTS, 3).add(NATURAL, uses[0]).add(WHITE, uses[1]).add_labels(classes=10)
    expected = [dense([*looks, 0, 0]) + math.log(10) for looks in uses.T]
    np.testing.assert_allclose(accountant.per_record(), expected, rtol=1e-9)
    account = accountant.account()
    assert (account.worst, account.uses, account.fresh_uses) == (2, 10, 10)
    assert account.dataset == pytest.approx(sum(expected), rel=1e-9)
    assert account.average == pytest.approx(sum(expected) / 3, rel=1e-9)


def test_a_frozen_copy_is_one_look_and_each_addition_is_another_copy():
    once = LeakageAccountant(MOMENTS).add(NATURAL, 50, noise="frozen")
    assert once.account().joint == pytest.approx(2.0, rel=1e-8)
    assert once.add(NATURAL, 9, noise="frozen").account().joint == pytest.approx(dense([2, 0, 0, 0]), rel=1e-9)
    assert once.account().uses == 59


def test_looks_through_one_channel_add_up_in_any_portions():
    parts = LeakageAccountant(MOMENTS).add(NATURAL, 1, steps=4).add(WHITE, 2).add(NATURAL, 3, steps=5)
    whole = LeakageAccountant(MOMENTS).add(NATURAL, 4).add(WHITE, 2)
    assert parts.account().record == whole.account().record
    assert parts.account().printed is None
    assert LeakageAccountant(MOMENTS).add(NATURAL, 4, steps=9).account().printed == pytest.approx(18.0)


def test_what_is_added_for_owners_is_that_of_each_of_their_records_and_of_different_numbers_the_largest():
    accountant = LeakageAccountant(MOMENTS, 4, group=3).add(NATURAL, 2).add(WHITE, np.array([0, 1, 0, 0]))
    accountant.add_labels(classes=10).add_nats(np.array([0.0, 0.0, 0.5, 0.0]))
    expected = 3 * (dense([2, 1, 0, 0]) + math.log(10) + 0.5)
    np.testing.assert_allclose(accountant.per_record(), [expected] * 4, rtol=1e-9)
    account = accountant.add(WHITE, 1, noise="frozen").account()
    assert account.joint == pytest.approx(3 * (dense([2, 2, 0, 0]) + 0.5), rel=1e-9)
    assert account.linear == pytest.approx(3 * (4 * 2.0 + 0.5), rel=1e-8)
    assert (account.uses, account.fresh_uses, account.group) == (12, 12, 3)


def test_nats_of_labels_add_up_for_records_that_were_used():
    accountant = LeakageAccountant(MOMENTS, 2).add(NATURAL, np.array([0, 3]))
    accountant.add_labels(nats=0.5).add_labels(nats=0.25)  # two responses of which neither covers the other
    np.testing.assert_allclose(accountant.per_record(), [0.0, dense([3, 0, 0, 0]) + 0.75], rtol=1e-9)


def test_nats_of_channels_that_are_not_at_hand_are_added_with_the_labels_of_their_records():
    """The second record was used by another channel alone: its label is out all the same, that of the first is not."""
    accountant = LeakageAccountant(MOMENTS, 3).add_nats(np.array([0.0, 1.5, 0.5])).add_labels(nats=0.25)
    np.testing.assert_allclose(accountant.per_record(), [0.0, 1.75, 0.75])
    accountant.add(NATURAL, np.array([0, 0, 2]))
    expected = [0.0, 1.75, dense([2, 0, 0, 0]) + 0.75]
    np.testing.assert_allclose(accountant.per_record(), expected, rtol=1e-9)
    account = accountant.account()
    assert (account.worst, account.labels) == (2, 0.25)
    assert account.linear == pytest.approx(4.0 + 0.5)
    assert account.dataset == pytest.approx(sum(expected), rel=1e-9)
