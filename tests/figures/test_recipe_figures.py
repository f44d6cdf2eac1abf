"""Figures that show every learning rate and stopping time beside the front of plain SGD."""

import numpy as np
import pytest

from leakbound_lab.claims.fronts import recipe_front
from leakbound_lab.claims.recipe_fronts import LeakageAxis, PlainSGD, recipes_of
from leakbound_lab.claims.selection import SelectionError
from leakbound_lab.figures import style
from leakbound_lab.registries import PLOTS

AUC = {"where": {"metric": "auc", "variant": "strongest"}, "nothing": 0.5, "least": 0.0}
GAIN = {"where": {"metric": "gain", "variant": "tuned"}, "nothing": 0.0, "least": 0.0}
ONE = {"leakages": {"membership AUC": AUC}, "utility": {"metric": "test_accuracy"}}
BOTH = {**ONE, "leakages": {"membership AUC": AUC, "gain": GAIN}}


def front_line(axes):
    (line,) = [one for one in axes.get_lines() if one.get_marker() == "none" and len(one.get_xdata()) > 2]
    return line


def test_every_candidate_of_every_arm_is_a_mark_and_the_chosen_ones_are_larger(recipes):
    own = recipes[recipes["dataset"] == "cifar10"]
    axes = PLOTS.get("recipes")(own, options=ONE).axes[0]
    for defense, arm in own.groupby("defense"):
        drawn = [line for line in axes.get_lines() if line.get_marker() == style.style_of(defense).marker]
        slots = arm[arm["metric"] == "test_accuracy"]
        small = np.concatenate([line.get_xdata() for line in drawn if line.get_markersize() < 3])
        large = [line.get_xdata()[0] for line in drawn if line.get_markersize() > 5]
        assert len(small) == slots.groupby(["run", "learning_rate"]).ngroups, defense
        chosen = arm[(arm["metric"] == "auc") & arm["chosen"]]
        auc = chosen.assign(value=chosen["value"].clip(lower=0.5)).groupby("run")["value"].mean()  # less is luck
        np.testing.assert_allclose(sorted(large), sorted(auc))


def test_the_line_is_the_mean_of_the_fronts_of_all_replicas(recipes):
    own = recipes[recipes["dataset"] == "svhn"]
    line = front_line(PLOTS.get("recipes")(own, options=ONE).axes[0])
    table = recipes_of(own, LeakageAxis(**AUC), PlainSGD(utility={"metric": "test_accuracy"}))
    plain = table[table["defense"].isin(["none", "early_stopping", "stopped"])]
    fronts = [recipe_front(one[["x", "y"]].to_numpy(), np.array([0.5, 0.1])) for _, one in plain.groupby("replica")]
    expected = [np.mean([np.interp(x, *front) for front in fronts]) for x in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), expected)
    assert (np.diff(line.get_ydata()) >= 0).all()


def test_an_arm_that_reaches_more_lies_right_of_plain_sgd_and_another_speed_does_not(recipes):
    picture = PLOTS.get("beyond")(recipes, options=BOTH)
    pooled, *datasets = picture.axes[:3]
    names = [label.get_text() for label in pooled.get_yticklabels()]
    middles = {}
    for axes in (pooled, *datasets):
        for line in axes.get_lines():
            if line.get_markersize() == 4.5:
                middles[axes, names[int(line.get_ydata()[0])]] = line.get_xdata()[0]
    for axes in (pooled, *datasets):
        assert middles[axes, "white"] == pytest.approx(0.045, abs=0.015)
        assert middles[axes, "natural"] == pytest.approx(0.0, abs=0.01)
        assert middles[axes, "DP-SGD"] < -0.02
    assert pooled.get_title() == "all"
    assert {"undefended", "undefended, stopped early"}.isdisjoint(names)


def test_a_table_of_chosen_rates_alone_is_drawn_too_and_two_rows_of_a_network_are_refused(recipes):
    chosen = recipes[recipes["chosen"]].drop(columns=["chosen", "learning_rate", "status"])
    assert len(PLOTS.get("recipes")(chosen, options=ONE).axes) == 2
    options = {**ONE, "utility": {"metric": ["test_accuracy", "train_accuracy"]}}
    with pytest.raises(SelectionError, match="several rows of one run, replica, learning_rate"):
        PLOTS.get("recipes")(recipes, options=options)


def test_without_plain_sgd_there_is_nothing_to_be_beyond(recipes):
    picture = PLOTS.get("beyond")(recipes[recipes["defense"] == "white"], options=ONE)
    assert "no replica has both plain SGD" in picture.texts[0].get_text().replace("\n", " ")
