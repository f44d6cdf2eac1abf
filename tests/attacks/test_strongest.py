"""The choice of the strongest attacker: by each metric, no leak where there is none, and not by a learner's luck."""

import numpy as np
import pytest
import torch
from scipy import stats

from leakbound_lab.attacks.membership.attack import LEARNED, STRONGEST, _Case, _results, strongest
from leakbound_lab.attacks.membership.known_records import AttackedRecords, Group
from leakbound_lab.attacks.membership.signals import Queries
from leakbound_lab.attacks.metrics import auc_interval, standard_errors, tpr_at_fpr
from leakbound_lab.attacks.rows import joined_columns, mean_roc_curve

PLAIN = ("loss_threshold", "lira_offline", "lira_online", "rmia")
EVERY = (*PLAIN, *LEARNED)
HALF = 300  # members, and as many others


def drawn(generator, gains, *, shared=0.7, count=HALF):
    """Scores of some attackers, which agree as those of one network do, with what each adds to members' scores."""
    common = generator.standard_normal(2 * count)
    noise = {name: shared * common + np.sqrt(1 - shared**2) * generator.standard_normal(2 * count) for name in EVERY}
    return {name: one + gains.get(name, 0.0) * (np.arange(2 * count) < count) for name, one in noise.items()}


def test_rows_of_the_strongest_are_those_of_the_choice_on_known_records():
    """On known records RMIA is best, and LiRA surely finds 40 % of the members; on scored ones the loss is best."""
    generator = np.random.default_rng(5)
    known = drawn(generator, {"rmia": 1.2}, count=100)
    known["lira_offline"][:40] += 9.0
    scored = drawn(generator, {"loss_threshold": 3.0}, count=100)
    some, nobody = (Group(np.arange(count), np.zeros(count, int)) for count in (200, 0))
    case = _Case(0, AttackedRecords(some, some, nobody, np.zeros(0, int)), [], Queries(), False, torch.Generator())
    rows, arrays = _results(case, {name: [known[name], scored[name]] for name in EVERY}, EVERY)
    values = {(row["variant"], row["metric"]): row["value"] for row in joined_columns(rows).to_dict("records")}
    for metric, name in (("auc", "rmia"), ("tpr_at_fpr_0.01", "lira_offline"), ("tpr_at_fpr_0.001", "lira_offline")):
        assert values[STRONGEST, metric] == values[name, metric]
    assert values["loss_threshold", "auc"] > 0.95 > values[STRONGEST, "auc"]
    assert np.array_equal(arrays["strongest_members"], scored["rmia"][:100])
    assert EVERY[arrays["strongest_choice"]] == "rmia"


@pytest.mark.no_shapes
def test_a_learner_is_taken_where_it_is_better_and_seldom_where_it_was_lucky():
    """One that is surely better is taken; of equals, two learners among six, the highest AUC took it in every third."""
    generator = np.random.default_rng(2)
    better, lucky, by_area = [], [], []
    for _ in range(120):
        known = drawn(generator, {"white_box": 0.5, **dict.fromkeys(PLAIN, 0.1)})
        better.append(strongest(known) == "white_box")
        equal = drawn(generator, dict.fromkeys(EVERY, 0.1))
        lucky.append(strongest(equal) in LEARNED)
        areas = {name: auc_interval(*np.split(scores, 2)).value for name, scores in equal.items()}
        by_area.append(max(areas, key=areas.__getitem__) in LEARNED)
    assert np.mean(better) > 0.95
    assert np.mean(lucky) < 0.5 * np.mean(by_area)
    assert np.mean(by_area) > 0.25


@pytest.mark.parametrize(("rate", "errors"), [(None, 1.0), (0.05, 1.645)])
def test_errors_of_a_difference_are_those_of_its_spread(rate, errors):
    """Two equal attackers differ by so many standard errors as often as a normal law says, at a rate not more often."""
    generator = np.random.default_rng(3)
    passed = 0
    for _ in range(600):
        known = drawn(generator, dict.fromkeys(EVERY, 1.0))
        pair = (known[name].reshape(2, -1) for name in ("rmia", "lira_online"))
        passed += standard_errors(*pair, rate) > errors
    share = stats.binomtest(passed, 600, stats.norm.sf(errors), alternative="two-sided" if rate is None else "greater")
    assert share.pvalue > 0.001


def test_records_without_a_score_stay_out_and_attackers_without_any_are_never_taken():
    generator = np.random.default_rng(4)
    known = drawn(generator, {"white_box": 3.0, "rmia": 1.0, "white_box_references": 2.0})
    known["white_box"][::7] = np.nan
    assert strongest(known) == "white_box"
    known["white_box"][:] = np.nan
    assert strongest(known) == "white_box_references"
    known["white_box_references"][2:] = np.nan
    assert strongest(known) == "rmia"


def test_mean_roc_curve_is_the_mean_of_the_rates_that_replicas_reach():
    rng = np.random.default_rng(0)
    members = rng.normal(1, 1, (3, 40)).round(1)  # with ties
    others = rng.normal(0, 1, (3, 25)).round(1)
    rates, reached = mean_roc_curve(members, others)
    assert rates[0] == 1 / 25
    assert rates[-1] == 1.0 == reached[-1]
    for rate, mean in zip(rates[:-1], reached[:-1], strict=True):
        each = [tpr_at_fpr(*replica, rate + 1e-9).value for replica in zip(members, others, strict=True)]
        assert mean == pytest.approx(np.mean(each))
    lost = np.full((1, 40), np.nan)
    assert np.array_equal(mean_roc_curve(np.vstack([members, lost]), np.vstack([others, others[:1]]))[1], reached)


def test_mean_roc_curve_reaches_nothing_where_all_records_look_alike():
    _, reached = mean_roc_curve(np.zeros((1, 9)), np.zeros((1, 9)))
    assert reached[:-1].tolist() == [0.0] * (len(reached) - 1)
    assert reached[-1] == 1.0
