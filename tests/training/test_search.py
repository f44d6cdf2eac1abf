import math

import numpy as np
import pandas as pd
import pytest

from leakbound.config.defenses import DPSGD, ChannelDefense, Undefended
from leakbound.training import UntrainableError, search_learning_rate
from leakbound.training.search import _best, _divide


def test_search_takes_the_better_learning_rate(request_for):
    found = search_learning_rate(request_for(training={"search_rounds": 80, "learning_rates": (1e-5, 0.05)}))
    assert found.learning_rate == 0.05
    table = found.table.set_index("learning_rate")
    assert table.loc[0.05, "validation_accuracy"] > 0.8 > table.loc[1e-5, "validation_accuracy"]


def test_search_ranks_a_diverged_candidate_last(request_for):
    found = search_learning_rate(request_for(training={"search_rounds": 20, "learning_rates": (1e-5, 90.0)}))
    assert found.learning_rate == 1e-5
    assert found.table["diverged"].tolist() == [False, True]
    assert math.isnan(found.table["validation_accuracy"][1])


def test_on_the_plateau_search_takes_the_candidate_that_gets_ahead(request_for):
    candidates = (3e-7, 1e-7, 2e-7)
    found = search_learning_rate(request_for(training={"search_rounds": 5, "learning_rates": candidates}))
    assert found.table["learning_rate"].tolist() == sorted(candidates)
    assert found.table["validation_accuracy"].nunique() == 1
    assert found.table["validation_loss"].is_monotonic_decreasing
    assert found.learning_rate == 3e-7


@pytest.mark.parametrize(
    ("accuracies", "losses", "expected"),
    [
        ((0.50, 0.52, 0.51), (1.2, 1.4, 1.3), 0.1),  # all within a standard error of 0.05: the loss decides
        ((0.50, 0.60, 0.51), (1.2, 1.4, 1.3), 0.2),  # one is ahead by more
        ((math.nan, 0.10, math.nan), (math.nan, 2.3, math.nan), 0.2),
        ((math.nan, math.nan, math.nan), (math.nan, math.nan, math.nan), 0.1),
    ],
)
def test_loss_decides_between_candidates_that_chance_may_have_ordered(accuracies, losses, expected):
    rates = [0.1, 0.2, 0.3]
    trials = {"learning_rate": rates, "validation_accuracy": accuracies, "validation_loss": losses}
    assert _best(pd.DataFrame(trials), 100) == expected


@pytest.mark.parametrize("defense", [Undefended(learning_rates=(0.02,)), DPSGD(learning_rates=(0.02,))])
def test_search_tries_the_candidates_of_the_defense(request_for, defense):
    level = 1.0 if isinstance(defense, DPSGD) else None
    request = request_for(defense=defense, level=level, training={"search_rounds": 2, "learning_rates": (0.5, 1.0)})
    assert search_learning_rate(request).table["learning_rate"].tolist() == [0.02]


def test_search_holds_out_a_part_of_the_members_and_no_test_image(request_for, digits):
    request = request_for(training={"validation_fraction": 0.25})
    parts = _divide(request)
    assert (len(parts.train.labels), len(parts.test.labels)) == (300, 100)
    together = np.concatenate([parts.train.images, parts.test.images]).reshape(400, -1)
    members = digits.train.images.reshape(400, -1)
    np.testing.assert_array_equal(np.sort(together, axis=0), np.sort(members, axis=0))
    assert np.array_equal(_divide(request).train.labels, parts.train.labels)


def test_search_repeats_itself_and_runs_through_the_channel(request_for, channel):
    request = request_for(
        defense=ChannelDefense(), level=8.0, channel=channel("natural", 8.0),
        training={"search_rounds": 10, "learning_rates": (0.01, 0.05)},
    )  # fmt: skip
    one, again = search_learning_rate(request), search_learning_rate(request)
    assert one.table.equals(again.table)


def test_search_names_a_batch_that_exceeds_the_members_left(request_for):
    request = request_for(batch_size=390, training={"search_rounds": 2})
    with pytest.raises(UntrainableError, match="batch_size = 390 but there are 320 members"):
        search_learning_rate(request)
