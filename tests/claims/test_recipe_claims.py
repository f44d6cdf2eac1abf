"""The claim that a defense lies beyond what plain SGD reaches by its own rates and stopping times."""

import numpy as np
import pandas as pd
import pytest

from leakbound.claims.outcomes import Blocks
from leakbound.claims.selection import EmptySelectionError
from leakbound.metrics import beyond_front
from leakbound.registry import CLAIM_TESTS

OPTIONS = {
    "arm": {"defense": "natural"},
    "leakage": {"where": {"metric": "auc"}, "nothing": 0.5},
    "utility": {"metric": "test_accuracy"},
}


def table(recipes: dict[str, list[tuple[float, float]]], replicas: int = 1, dataset: str = "digits") -> pd.DataFrame:
    """Rows of recipes, leakage and utility of each; every further replica of an arm reaches .01 more."""
    rows = []
    for defense, points in recipes.items():
        for index, (auc, accuracy) in enumerate(points):
            for replica in range(replicas):
                lifted = accuracy + 0.01 * replica * (defense == "natural")
                for metric, value in (("auc", auc), ("test_accuracy", lifted)):
                    rows.append((defense, f"{defense}-{index % 2}", 0.01 * index, replica, metric, value))
    columns = ["defense", "run", "learning_rate", "replica", "metric", "value"]
    return pd.DataFrame(rows, columns=columns).assign(dataset=dataset, model="lenet")


def effects(rows: pd.DataFrame, **changes: object) -> list[float]:
    found = CLAIM_TESTS.get("beyond")(rows, options={**OPTIONS, **changes})
    assert isinstance(found, Blocks)
    assert (found.claimed, found.rule) == (1, "beyond")
    return found.effects.iloc[:, 0].tolist()


def test_effect_is_the_mean_height_above_the_front_of_plain_sgd_in_each_replica():
    plain = {"none": [(0.6, 0.4), (0.7, 0.3)], "stopped": [(0.55, 0.3)]}
    rows = table({**plain, "natural": [(0.6, 0.5)]}, replicas=3)
    # Plain SGD has corners (.5, .1), (.55, .3), (.6, .4), the arm (.5, .1), (.6, .5): 0, 0 and .1 above them.
    assert effects(rows)[0] == pytest.approx((0.0 + 0.05) / 2)
    reference, guess = np.array([(0.6, 0.4), (0.7, 0.3), (0.55, 0.3)]), np.array([0.5, 0.1])
    expected = [beyond_front(np.array([(0.6, 0.5 + 0.01 * replica)]), reference, guess) for replica in range(3)]
    assert effects(rows) == pytest.approx(expected)


def test_an_arm_that_is_a_mixture_of_two_recipes_of_plain_sgd_is_not_beyond():
    rows = table({"none": [(0.6, 0.4)], "natural": [(0.55, 0.25)]})
    assert effects(rows)[0] < 0  # it lies on the line to the guess, and reaches no higher


def test_a_smaller_rate_of_plain_sgd_is_not_beyond_it():
    front = [(0.52, 0.25), (0.56, 0.35), (0.65, 0.42)]
    assert effects(table({"none": front, "natural": front})) == pytest.approx([0.0], abs=1e-12)


def test_the_guess_of_a_dataset_is_its_own():
    rows = table({"none": [(0.6, 0.8)], "natural": [(0.55, 0.75)]}, dataset="celeba")
    few, many = (effects(rows, guesses={"celeba": guess})[0] for guess in (0.1, 0.5))
    assert few > many  # the worse a guess, the more an arm gains that leaks little


def test_replicas_without_plain_sgd_are_not_compared():
    rows = table({"none": [(0.6, 0.4)], "natural": [(0.6, 0.5)]}, replicas=3)
    rows = rows[~((rows["defense"] == "none") & (rows["replica"] == 1))]
    assert len(effects(rows)) == 2


def test_an_arm_that_is_not_in_the_rows_is_named():
    with pytest.raises(EmptySelectionError, match=r"select\.defense = 'natural' leaves no row"):
        effects(table({"none": [(0.6, 0.4)], "white": [(0.6, 0.5)]}))
