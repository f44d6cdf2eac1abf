import pytest

from leakbound.claims import tabulation


def test_improvements_follow_the_printed_formulas():
    assert tabulation.imp_mia(0.6, 0.8) == pytest.approx(0.25)
    assert tabulation.imp_dra(0.05, 0.02) == pytest.approx(0.6)
    assert tabulation.gdc(0.25, 0.6) == pytest.approx(0.425)
