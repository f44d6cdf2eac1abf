"""A run and its repeat: two looks err as often as one, and what flips is undecided."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
from test_false_alarms import most

from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.claims.evaluation import evaluate as evaluated
from repeats import evaluate_twice, pooled_rows
from verdicts import entry

ALPHA = 0.05
generator_of = partial(numpy_generator, 0)
CLAIM = {
    "id": "above",
    "text": "Noise hides more.",
    "test": "greater",
    "delta": 0.1,
    "unit": "AUC",
    "options": {"a": {"defense": "none"}, "b": {"defense": "natural"}, "match": []},
}


def figure(*claims):
    return entry(paper="beyond", claims=claims or (CLAIM,))


def rows(differences, dataset="digits"):
    """Rows of an undefended run and a defended one in each block, that differ by so much."""
    blocks = [
        {"dataset": dataset, "model": "mlp", "defense": defense, "level": np.nan, "replica": replica, "value": value}
        for replica, difference in enumerate(differences)
        for defense, value in (("none", 0.5 + difference), ("natural", 0.5))
    ]
    return pd.DataFrame(blocks)


def twice(first, repeat):
    table = evaluate_twice(figure(), rows(first), rows(repeat), ALPHA, generator_of)
    return table.set_index("dataset").loc["all"]


def test_replicas_of_a_repeat_follow_those_of_the_first_run():
    both = pooled_rows(rows([1.0, 2.0]), rows([3.0, 4.0, 5.0]))
    assert sorted(set(both["replica"])) == [0, 1, 2, 3, 4]
    assert both.loc[both["replica"] == 4, "value"].tolist() == [5.5, 0.5]
    of_all = pd.DataFrame({"replica": [-1, 0], "value": [9.0, 1.0]})
    assert pooled_rows(of_all, of_all)["replica"].tolist() == [-1, 0, -2, 1]  # no row about all is one of a replica


def test_blocks_of_a_repeat_decide_what_the_first_run_could_not():
    few = twice([1.0, 1.2, 0.9, 1.1, 1.0], [1.1, 0.9, 1.0, 1.2, 0.8])
    assert (few["first"], few["verdict"], few["blocks"]) == ("undecided", "reproduced", 10)
    assert few["effect"] == pytest.approx(1.02)


def test_a_claim_that_flips_is_undecided():
    up, down = np.linspace(0.8, 1.2, 8), -np.linspace(0.8, 1.2, 8)
    flipped = twice(up, down)
    assert (flipped["first"], flipped["repeat"], flipped["verdict"]) == ("reproduced", "contradicted", "undecided")
    assert "flips: reproduced by the first run, contradicted by its repeat" in flipped["detail"]
    assert twice(up, up)["verdict"] == "reproduced"
    assert twice(up, up)["detail"] == twice(up, up * 1.0)["detail"]
    lost = twice(up, np.tile([-9.0, 9.0], 4))  # the repeat shows nothing, and hides what the first run showed
    assert (lost["first"], lost["repeat"], lost["verdict"]) == ("reproduced", "undecided", "reproduced")
    assert lost["detail"].endswith("decided by the first run")


def test_negligible_takes_the_interval_of_the_level():
    close = np.array([0.05, -0.02, 0.16, 0.01, 0.09, 0.14, 0.03, 0.11])
    row = evaluated(figure(), rows(close), ALPHA, generator_of).iloc[-1]
    claim = {**CLAIM, "delta": (row["high_90"] + row["high"]) / 2}
    assert [
        evaluated(figure(claim), rows(close), alpha, generator_of).iloc[-1]["verdict"] == "negligible"
        for alpha in (0.05, 0.025)
    ] == [True, False]


def test_a_figure_that_the_first_run_lacks_has_one_look_at_the_full_level():
    table = evaluate_twice(
        figure(), rows([1.0] * 3).query("defense == 'none'"), rows([1.0, 1.1, 0.9, 1.2, 1.0, 0.95]), ALPHA, generator_of
    )
    row = table.set_index("dataset").loc["all"]
    assert (row["first"], row["verdict"], row["blocks"]) == ("", "reproduced", 6)
    assert ALPHA / 2 < row["p_value"] < ALPHA  # 6 blocks go no lower than 2^-5


def test_a_figure_that_the_repeat_lacks_has_one_look_at_the_full_level():
    """The smallest p-value of six blocks is 1/32, which half of the level does not allow."""
    first = rows([1.0, 1.2, 0.9, 1.1, 1.0, 0.8])
    elsewhere = rows([1.0] * 6).assign(defense="white")  # rows of the study, none of this figure
    table = evaluate_twice(figure(), first, elsewhere, ALPHA, generator_of).set_index("dataset").loc["all"]
    assert (table["first"], table["repeat"], table["verdict"], table["blocks"]) == ("reproduced", "", "reproduced", 6)
    halved = evaluated(figure(), first, ALPHA / 2, generator_of).set_index("dataset").loc["all"]
    assert halved["verdict"] == "undecided"


def test_a_claim_is_mixed_where_more_blocks_show_that_the_datasets_differ():
    def of_two(shift, width):
        noise = width * np.array([-1.0, 1.0, -0.5, 0.5, -1.0, 1.0])
        return pd.concat([rows(0.9 + noise / 9), rows(shift + noise, "svhn")])

    table = evaluate_twice(figure(), of_two(0.08, 0.05), of_two(-0.08, 0.05), ALPHA, generator_of)
    whole = table.set_index("dataset").loc["all"]
    assert (whole["first"], whole["verdict"]) == ("reproduced", "mixed")
    assert whole["detail"].endswith("datasets differ, by Student's t: digits as claimed; svhn negligible")


@pytest.mark.slow
def test_two_looks_at_half_of_the_level_err_as_seldom_as_one_look():
    trials, generator = 120, np.random.default_rng(5)
    errors = 0
    for _ in range(trials):
        parts = [rows(generator.standard_t(3, size=8)) for _ in range(2)]
        errors += evaluate_twice(figure(), *parts, ALPHA, generator_of)["verdict"].iloc[-1] != "undecided"
    assert errors / trials <= most(trials)


def test_each_of_the_two_analyses_has_half_of_the_level():
    """Six blocks of one sign have p = 2/64 by sign flips: below .05, above .025."""
    six = np.linspace(0.8, 1.2, 6)
    assert evaluated(figure(), rows(six), ALPHA, generator_of).set_index("dataset").loc["all", "p_value"] == 2 / 64
    first = twice(six, six[:1])
    assert (first["first"], first["verdict"]) == ("undecided", "reproduced")  # seven blocks together: 2/128
    both = twice(six[:3], six[3:])
    assert (both["blocks"], both["p_value"], both["verdict"]) == (6, 2 / 64, "undecided")
