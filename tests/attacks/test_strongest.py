"""The choice of the strongest attacker: by each metric, no leak where there is none, and not by a learner's luck."""

import numpy as np
import pytest
from scipy import stats

from leakbound.attacks.membership import LEARNED, strongest
from leakbound.metrics import auc_interval, tpr_at_fpr

PLAIN = ("loss_threshold", "lira_offline", "lira_online", "rmia")
EVERY = (*PLAIN, *LEARNED)
HALF = 300  # members, and as many others


def drawn(generator, gains, *, shared=0.7, count=HALF):
    """Scores of some attackers, which agree as those of one network do, with what each adds to members' scores."""
    common = generator.standard_normal(2 * count)
    noise = {name: shared * common + np.sqrt(1 - shared**2) * generator.standard_normal(2 * count) for name in EVERY}
    return {name: one + gains.get(name, 0.0) * (np.arange(2 * count) < count) for name, one in noise.items()}


@pytest.mark.parametrize("rate", [None, 0.01])
def test_without_a_leak_the_strongest_is_wrong_as_often_as_stated(rate):
    """Chosen on some records and judged on others; learners look a tenth of a deviation better where they are chosen.

    Of 400 intervals of 95 % more than 34 without the value of chance have probability .001, and the mean of 400 areas,
    of standard deviation .0236 each, lies within .0039 of a half but for .001.
    """
    generator = np.random.default_rng(0)
    missed, values = 0, []
    for _ in range(400):
        name = strongest(drawn(generator, dict.fromkeys(LEARNED, 0.1)), rate)
        members, others = np.split(drawn(generator, {})[name], 2)
        if rate is None:
            found = auc_interval(members, others)
            missed += not found.low <= 0.5 <= found.high
            values.append(found.value)
        else:
            values.append(tpr_at_fpr(members, others, rate).value)
    assert missed <= 34
    if rate is None:
        assert abs(np.mean(values) - 0.5) < 0.0039
    else:  # a threshold between the third and fourth of 300 others: 3.5/301, and 5 standard errors
        assert abs(np.mean(values) - 3.5 / 301) < 5 * np.std(values) / 20


def test_each_metric_has_its_own_choice():
    """RMIA finds a tenth of the members without doubt; the loss is a little higher for all of them."""
    generator = np.random.default_rng(1)
    known = drawn(generator, {"loss_threshold": 0.6})
    known["rmia"][: HALF // 10] += 9.0
    assert strongest(known) == "loss_threshold"
    assert strongest(known, 0.01) == "rmia"


def test_a_learner_is_taken_where_it_is_better_and_not_where_it_was_lucky():
    """One that is surely better is taken; without any difference two are in less than every tenth case, .05 each."""
    generator = np.random.default_rng(2)
    better, lucky, by_area = [], [], []
    for _ in range(200):
        known = drawn(generator, {"white_box": 0.5, **dict.fromkeys(PLAIN, 0.1)})
        better.append(strongest(known) == "white_box")
        equal = drawn(generator, dict.fromkeys(EVERY, 0.1))
        lucky.append(strongest(equal) in LEARNED)
        areas = {name: auc_interval(*np.split(scores, 2)).value for name, scores in equal.items()}
        by_area.append(max(areas, key=areas.__getitem__) in LEARNED)
    assert np.mean(better) > 0.95
    assert np.mean(lucky) < 0.1
    assert np.mean(by_area) > 0.2  # as the choice was once


def test_test_of_a_difference_is_delongs():
    """The paired test agrees with the spread of differences over 600 draws."""
    generator = np.random.default_rng(3)
    passed = []
    for _ in range(600):
        known = {name: one for name, one in drawn(generator, {}).items() if name in ("rmia", "white_box")}
        passed.append(strongest(known) == "white_box")
    assert stats.binomtest(sum(passed), 600, 0.05).pvalue > 0.001


def test_records_without_a_score_stay_out_and_attackers_without_any_are_never_taken():
    generator = np.random.default_rng(4)
    known = drawn(generator, {"white_box": 3.0, "rmia": 1.0, "white_box_references": 2.0})
    known["white_box"][::7] = np.nan
    assert strongest(known) == "white_box"
    known["white_box"][:] = np.nan
    assert strongest(known) == "white_box_references"
    known["white_box_references"][2:] = np.nan
    assert strongest(known) == "rmia"
