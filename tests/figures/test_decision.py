"""The page for a decision, from small tables whose outcome is known."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from leakbound.config.comparing import OwnImages, comparison
from leakbound.config.reading import check
from leakbound.figures.report.decision import Decision, decision_page

VERDICTS = {
    "natural": ("reproduced", 0.03),
    "white": ("contradicted", -0.04),
    "personalized": ("negligible", 0.001),
    "dpsgd": ("undecided", 0.02),
    "clipping": ("undecided", -0.01),
}


@pytest.fixture
def decision() -> Decision:
    values = comparison(
        OwnImages("digits", "digits", 1438, 359, 8, 8), "mine", (1.0, 8.0), replicas=6, members=100, seed=0
    )
    config = check({**values, "catalogue": "config/figures"}, "comparison")
    rows = [
        {"defense": defense, "level": level, "replica": replica, "metric": metric, "variant": variant, "value": value}
        for defense, level in (("none", np.nan), ("natural", 1.0), ("natural", 8.0), ("dpsgd", 0.5))
        for replica in range(6)
        for metric, variant, value in (
            ("test_accuracy", "", 0.9 + 0.001 * replica if defense == "none" else 0.8),
            ("auc", "strongest", 0.7 if defense == "none" else 0.6),
            *((("epsilon", "", 12.0), ("epsilon", "replicas", 900.0)) if defense == "dpsgd" else ()),
        )
    ]
    table = pd.DataFrame(rows).assign(
        chosen=True, length="full", status="", dataset="digits", model="mlp", rounds=400, batch_size=32
    )
    half = table.assign(length="half", value=0.1)
    claims = [
        {
            "figure": "recipes" if defense == "clipping" else "fig15_recipes",
            "claim": f"{defense}_against_membership",
            "dataset": "digits",
            "verdict": verdict,
            "effect": effect,
            "low": effect - 0.01,
            "high": effect + 0.01,
            "blocks": 6,
            "blocks_needed": 18.0,
        }
        for defense, (verdict, effect) in VERDICTS.items()
    ]
    pooled = [{**claim, "dataset": "all", "effect": 9.0} for claim in claims]
    drawings = {"tan2024/fig15_recipes": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    return Decision(config, pd.DataFrame([*claims, *pooled]), {"comparison": pd.concat([table, half])}, drawings, 600.0)


def test_sentences_name_each_protection_under_its_verdict(decision):
    worth, not_worth, small, undecided = decision.sentences[1:5]
    assert worth.startswith("Worth the cost against membership inference, at the learning rates that were tried")
    assert "Smaller rates of plain SGD may close such a lead" in worth
    assert "natural (+3.0 points" in worth
    assert not_worth.startswith("Not worth")
    assert "white (-4.0 points" in not_worth
    assert "personalized (+0.1 points" in small
    assert undecided.startswith("Undecided")
    assert "DP-SGD" in undecided
    assert "clipping" in undecided


def test_nothing_is_called_worth_its_cost_without_a_verdict_that_says_so(decision):
    claims = decision.claims.assign(verdict="undecided")
    sentences = Decision(decision.config, claims, decision.tables, {}, 600.0).sentences
    assert not any(text.startswith("Worth") for text in sentences)
    assert any(text.startswith("No protection is shown to leave more accuracy") for text in sentences)


def test_the_price_of_deciding_is_that_of_all_replicas_which_are_trained_again(decision):
    row = decision.fronts.set_index("label").loc["DP-SGD"]
    assert "18 replicas would decide, and take about 30 minutes of CPU time" in row["outcome"]  # 6 took 10 minutes
    assert "set <code>replicas</code> in <code>compare.yaml</code>, now 6" in decision_page(decision)
    decided = dataclasses.replace(decision, claims=decision.claims.assign(verdict="reproduced"))
    assert "set <code>replicas</code>" not in decision_page(decided)


def test_an_effect_that_its_number_of_replicas_should_have_decided_is_near_a_decision(decision):
    claims = decision.claims.assign(blocks_needed=6.0)
    fronts = Decision(decision.config, claims, decision.tables, {}, 600.0).fronts
    assert fronts.set_index("label").loc["DP-SGD", "outcome"].startswith("undecided, but near a decision")


def test_arms_are_means_over_replicas_of_full_trainings(decision):
    arms = decision.arms.set_index(["defense", "level"])
    plain = arms.loc[("none", "")]
    assert plain["accuracy"] == pytest.approx(0.9025)
    assert plain["accuracy_low"] < plain["accuracy"] < plain["accuracy_high"]
    assert plain["auc"] == pytest.approx(0.7)
    assert arms.xs("dpsgd")["epsilon"].tolist() == ["12"]


def with_diverged(decision: Decision, replicas: int) -> Decision:
    """The decision where the natural channel at 1 nat has so many replicas whose networks all diverged."""
    table = decision.tables["comparison"]
    lost = (table["defense"] == "natural") & (table["level"] == 1.0) & (table["replica"] < replicas)
    rows = table[lost & (table["metric"] == "test_accuracy")].assign(metric="diverged", value=1.0)
    return dataclasses.replace(decision, tables={"comparison": pd.concat([table[~lost], rows])})


def test_a_level_at_which_networks_diverged_is_in_the_table_with_their_number(decision):
    row = next(with_diverged(decision, 2).arms.query("defense == 'natural'").itertuples())
    assert (row.diverged, row.accuracy) == (2, pytest.approx(0.8))
    assert "(2 diverged)" in decision_page(with_diverged(decision, 2))
    assert "diverged" not in decision_page(decision)


def test_a_level_at_which_every_network_diverged_has_no_numbers_and_the_reason(decision):
    lost = with_diverged(decision, 6)
    first = next(lost.arms.query("defense == 'natural'").itertuples())
    assert (first.diverged, np.isnan(first.accuracy), np.isnan(first.auc)) == (6, True, True)
    page = decision_page(lost)
    assert page.count("every network diverged before its end, at every learning rate that was tried") == 1
    assert "nan" not in page
    assert lost.sentences == decision.sentences


def test_nothing_is_said_of_networks_without_protection_that_all_diverged(decision):
    table = decision.tables["comparison"]
    rows = table[(table["defense"] == "none") & (table["metric"] == "test_accuracy")].assign(
        metric="diverged", value=1.0
    )
    lost = dataclasses.replace(decision, tables={"comparison": pd.concat([table[table["defense"] != "none"], rows])})
    assert decision.sentences[0].startswith("Without protection")
    assert not any(text.startswith("Without protection") for text in lost.sentences)
    assert not any("nan" in text for text in lost.sentences)


def test_page_holds_everything_and_asks_for_nothing(decision):
    page = decision_page(decision)
    assert page.count("<figure>") == 1
    assert "http://" not in page
    assert "https://" not in page
    assert "reproduced" not in page  # verdicts are in words of a decision


def test_responses_to_labels_are_said_with_their_nats(decision):
    assert not any(text.startswith("Labels are") for text in decision.sentences)
    digits = decision.config.datasets["digits"].model_copy(update={"label_nats": 0.5})
    config = decision.config.model_copy(update={"datasets": {"digits": digits}})
    sentences = dataclasses.replace(decision, config=config).sentences
    assert any(text.startswith("Labels are randomized responses") and "at most 0.5 nats" in text for text in sentences)


def test_a_table_has_records_and_no_images(decision):
    rows = [
        {"metric": metric, "variant": variant, "value": 0.5, "defense": "none", "level": np.nan}
        for metric, variant in (("relative_mse", "attack"), ("mse", "prior"))
    ]
    inverted = pd.DataFrame(rows).assign(unit=-1, chosen=True, status="", dataset="own", model="mlp", replica=0)
    tables = decision.tables | {"gradient_inversion": inverted.assign(rounds=0, batch_size=1)}
    (text,) = (text for text in dataclasses.replace(decision, tables=tables).sentences if "gradient" in text)
    assert "the image recovered" in text
    own = decision.config.datasets["digits"].model_copy(update={"reader": "table", "path": "own.csv"})
    config = decision.config.model_copy(update={"datasets": {"own": own}})
    (text,) = (t for t in dataclasses.replace(decision, tables=tables, config=config).sentences if "gradient" in t)
    assert "the record recovered" in text
    assert "image" not in text


def test_the_columns_of_a_table_are_named_under_its_records(decision):
    drawings = {"beyond/limit_pictures": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    named = dataclasses.replace(decision, drawings=drawings, columns=("age", "<b>sex</b>"))
    assert "Values from left to right: age, &lt;b&gt;sex&lt;/b&gt;." in decision_page(named)
    many = dataclasses.replace(named, columns=tuple(f"column {number}" for number in range(43)))
    page = decision_page(many)
    assert "column 39 and 3 others." in page
    assert "column 40" not in page
    assert "left to right" not in decision_page(dataclasses.replace(named, columns=()))
