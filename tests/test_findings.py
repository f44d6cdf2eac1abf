"""The findings and the README's results say what the kept results say."""

from pathlib import Path

import pytest

import findings

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_pages_hold_the_numbers_of_the_kept_results():
    stale = [str(path.relative_to(ROOT)) for path, text in findings.pages().items() if path.read_text() != text]
    assert not stale, "run python tools/findings.py"


@pytest.mark.parametrize(
    ("value", "digits", "sign", "text"),
    [
        (0.3851, 3, False, ".385"),
        (-0.0033, 3, True, "−.003"),
        (0.0277, 3, True, "+.028"),
        (-0.0001, 3, True, ".000"),
        (float("nan"), 2, False, "–"),
        (-1.5, 1, True, "−1.5"),
    ],
)
def test_numbers_are_written_as_the_pages_write_them(value, digits, sign, text):
    assert findings.written(value, digits, sign) == text


def test_what_no_row_has_is_an_error():
    kept = findings.Numbers("photos")
    with pytest.raises(ValueError, match="no rows"):
        kept.mean("comparison", "auc", defense="natural", level=77.0)
    with pytest.raises(ValueError, match="0 rows of"):
        kept.claim("tan2024/fig15/no_such_claim")


@pytest.mark.slow
def test_two_runs_together_have_the_blocks_of_both_and_the_mean_of_their_effects():
    key = "tan2024/fig15_recipes/dpsgd_against_membership"
    single = [findings.Numbers(name).claim(key) for name in ("rates", "svhn_celeba")]
    both = findings.together("rates", "svhn_celeba", "comparison").claim(key)
    assert both["blocks"] == sum(row["blocks"] for row in single)
    assert both["effect"] == pytest.approx(sum(row["effect"] for row in single) / 2)  # two datasets each
    assert min(row["low"] for row in single) < both["low"] < both["high"] < max(row["high"] for row in single)
