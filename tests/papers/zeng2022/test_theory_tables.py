"""Rows of the figures, and the verdicts that they give."""

from pathlib import Path

import pandas as pd
import pytest
from pydantic import ValidationError

from leakbound_lab.config import reading
from leakbound_lab.config.theory import CorrelatedCase, TheoryConfig
from leakbound_lab.papers.zeng2022.case_tables import theory_rows
from verdicts import evaluate

CATALOGUE = Path(__file__).parents[3] / "config" / "figures" / "zeng2022.yaml"
QUICK = reading.quick()
FAILING = {
    "printed_noise_is_optimal",
    "printed_constraint_holds_at_the_optimum",
    "saturates",
    "printed_constraint_keeps_the_budget",
}


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return {part: theory_rows(part, QUICK.theory, 0) for part in QUICK.theory.tables()}


def test_every_table_is_tidy(tables):
    for rows in tables.values():
        assert {"mi_budget", "variant", "metric", "value"} <= set(rows.columns)
        keys = [column for column in rows.columns if column != "value"]
        assert not rows.duplicated(keys).any()
        assert rows.loc[rows["metric"] != "privacy_printed", "value"].notna().all()


def test_claims_have_the_verdicts_that_the_formulas_imply(tables):
    figures = reading.load_catalogue(CATALOGUE, QUICK).figures
    for figure in figures:
        rows = tables[figure.table.removeprefix("theory/")]
        verdicts = evaluate(figure, rows, alpha=0.05).drop_duplicates("claim").set_index("claim")["verdict"]
        for claim, verdict in verdicts.items():
            assert verdict == ("fails" if claim in FAILING else "holds"), f"{figure.id}.{claim}"
    assert {claim.id for figure in figures for claim in figure.claims} >= FAILING


def test_draws_depend_on_seed_and_replica_only():
    settings = QUICK.theory
    more = settings.model_copy(update={"case1": settings.case1.model_copy(update={"draws": 4})})
    first, again = (theory_rows("case1", given, 0) for given in (settings, more))
    pd.testing.assert_frame_equal(first, again[again["replica"] < 3].reset_index(drop=True))
    other = theory_rows("case1", settings, 1)
    assert not other["value"].equals(first["value"])


def test_a_table_that_is_left_out_is_not_made():
    settings = TheoryConfig(case1=None)
    assert "case1" not in settings.tables()
    with pytest.raises(ValueError, match="makes case2"):
        theory_rows("case1", settings, 0)


def test_an_impossible_covariance_is_refused_before_any_work():
    with pytest.raises(ValidationError, match=r"above -0.3 and below 30 only"):
        CorrelatedCase(covariance=-0.4)
