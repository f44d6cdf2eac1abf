"""The scoreboard: five verdicts, closed forms apart, and every number that a verdict rests on."""

import numpy as np
import pandas as pd
import pytest

from figures import over_networks
from leakbound_lab.claims.evaluation import COLUMNS, VERDICTS
from leakbound_lab.claims.scoreboard import (
    CLOSED_FORMS,
    NUMBERS,
    effect_text,
    of_datasets,
    scoreboard,
    scoreboard_rows,
    to_markdown,
    verdict_counts,
)


def claim(name: str, verdict: str, *, paper: str = "tan2024", exact: bool = False, **changes: object) -> dict:
    stated = {"paper": paper, "figure": "fig09", "claim": name, "text": f"Claim {name}.", "dataset": "all"}
    stated |= {"model": "all", "test": "greater", "unit": "" if exact else "accuracy", "verdict": verdict}
    numbers = dict.fromkeys(("delta", "low", "high", "low_90", "high_90", "power"), np.nan)
    numbers |= {
        "effect": 0.02,
        "claimed": 0 if exact else 1,
        "p_value": 0.0,
        "p_adjusted": 0.0,
        "blocks": 0,
        "blocks_needed": pd.NA,
    }
    if not exact:
        numbers |= {"delta": 0.01, "low": 0.015, "high": 0.025, "low_90": 0.016, "high_90": 0.024, "power": 0.9}
        numbers |= {"p_value": 0.01, "p_adjusted": 0.02, "blocks": 20, "blocks_needed": 12}
    return {**stated, **numbers, "exact": exact, "printed": True, "detail": "compared", **changes}


@pytest.fixture
def claims() -> pd.DataFrame:
    rows = [claim(name, name) for name in VERDICTS]
    rows += [
        claim(name, name, exact=True, paper=paper) for name, paper in (("holds", "tan2024"), ("fails", "wang2020"))
    ]
    rows += [claim("ours", "contradicted", printed=False)]
    for dataset, verdict in (("cifar10", "reproduced"), ("svhn", "contradicted"), ("celeba", "reproduced")):
        rows.insert(0, claim("mixed", verdict, dataset=dataset, model="lenet", blocks=5))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"blocks_needed": "Int64", "exact": bool, "printed": bool})


def test_closed_forms_are_counted_apart_from_experiments(claims):
    board = scoreboard(claims).set_index("paper")
    assert board.columns.tolist() == [*VERDICTS, *CLOSED_FORMS.values(), "claims"]
    assert board.loc["tan2024"].tolist() == [1, 1, 1, 1, 1, 1, 0, 6]
    assert board.loc["wang2020"].tolist() == [0, 0, 0, 0, 0, 0, 1, 1]
    assert board.loc["beyond"].tolist() == [0, 1, 0, 0, 0, 0, 0, 1]  # ours, on a figure of the paper
    assert board.loc["all"].tolist() == [1, 2, 1, 1, 1, 1, 1, 8]
    counts = verdict_counts(claims)  # of the figure: every paper, kind and verdict
    assert (len(counts), counts["value"].sum()) == (3 * (len(VERDICTS) + len(CLOSED_FORMS)), 8)


def test_a_verdict_stands_beside_its_effect_delta_blocks_and_power(claims):
    (line,) = scoreboard_rows(claims[(claims["claim"] == "mixed") & (claims["dataset"] == "all")]).to_dict("records")
    assert [line[name] for name in NUMBERS] == [
        "+0.02 accuracy [0.015, 0.025], as claimed",
        *("0.01 accuracy", "0.020", "20", "0.90", "12"),
    ]
    (exact,) = scoreboard_rows(claims[claims["claim"] == "holds"]).to_dict("records")
    assert [exact[name] for name in NUMBERS[1:]] == ["–", "exact", "–", "–", "–"]
    unknown = claims[claims["claim"] == "undecided"].assign(power=np.nan, blocks_needed=pd.NA)
    (line,) = scoreboard_rows(unknown.assign(p_adjusted=0.0009, effect=np.nan)).to_dict("records")
    assert [line[name] for name in NUMBERS] == ["–", "0.01 accuracy", "< 0.001", "20", "–", "cannot tell"]


@pytest.mark.parametrize(
    ("effect", "claimed", "words"),
    [
        (0.0429, -1, "+0.0429 dB per doubling [-0.01, 0.09], against the claim"),
        (-0.58, -1, "-0.58 dB per doubling [-0.01, 0.09], as claimed"),
        (0.003, 0, "+0.003 dB per doubling [-0.01, 0.09]"),
    ],
)
def test_an_effect_has_unit_sign_and_direction(effect, claimed, words):
    stated = claim("falls", "negligible", effect=effect, claimed=claimed, low=-0.01, high=0.09, unit="dB per doubling")
    row = pd.Series(stated)
    assert effect_text(row) == words
    assert effect_text(row, interval=False) == words.replace(" [-0.01, 0.09]", "")


def test_each_datasets_own_verdict_stands_beside_that_over_all_blocks(claims):
    found = dict(zip([*VERDICTS, "holds", "fails", "ours"], of_datasets(claims), strict=True))
    assert found["mixed"] == "2 reproduced, 1 contradicted"
    assert found["reproduced"] == found["holds"] == ""
    effect = "+0.02 accuracy [0.015, 0.025], as claimed"
    line = f"| **mixed** | {effect} | 0.01 accuracy | 0.020 | 20 | 0.90 | 12 | 2 reproduced, 1 contradicted |"
    assert line in to_markdown(claims)


@pytest.mark.parametrize(
    ("lenet", "resnet10", "together"),
    [
        ("reproduced", "undecided", "reproduced"),
        ("undecided", "contradicted", "contradicted"),
        ("reproduced", "contradicted", "mixed"),
        ("undecided", "undecided", "undecided"),
        ("holds", "fails", "fails"),
    ],
)
def test_networks_that_decide_a_claim_differently_make_it_mixed_by_name(lenet, resnet10, together):
    def run(model: str, verdict: str) -> pd.DataFrame:
        on = (("cifar10", model), ("all", "all"))
        rows = [claim("rises", verdict, dataset=d, model=m, exact=verdict in CLOSED_FORMS) for d, m in on]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    joined = over_networks([run("lenet", lenet), run("resnet10", resnet10)])
    assert list(joined.columns) == list(COLUMNS)
    assert joined["model"].tolist() == ["lenet", "resnet10", "all"]
    assert joined["verdict"].iloc[-1] == together
    differ = "undecided" not in (lenet, resnet10)
    stated = f"networks differ: {lenet} on lenet; {resnet10} on resnet10" if differ else "compared"
    assert joined["detail"].iloc[-1] == stated
