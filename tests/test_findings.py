"""The findings and the README's results say what the kept results say."""

import re
from pathlib import Path

import pandas as pd
import pytest

import findings
from leakbound_lab.config import reading
from leakbound_lab.figures.plots.drawn_table import booktabs
from leakbound_lab.registries import PLOTS

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
    photos = findings.kept("photos")
    with pytest.raises(ValueError, match="no rows"):
        photos.mean("comparison", "auc", defense="natural", level=77.0)
    with pytest.raises(ValueError, match="0 rows of"):
        photos.claim("tan2024/fig15/no_such_claim")


@pytest.mark.slow
def test_two_runs_together_have_the_blocks_of_both_and_the_mean_of_their_effects():
    key = "tan2024/fig15_recipes/dpsgd_against_membership"
    single = [findings.kept(name).claim(key) for name in ("rates", "svhn_celeba")]
    both = findings.together("rates", "svhn_celeba", "comparison").claim(key)
    assert both["blocks"] == sum(row["blocks"] for row in single)
    assert both["effect"] == pytest.approx(sum(row["effect"] for row in single) / 2)  # two datasets each
    assert min(row["low"] for row in single) < both["low"] < both["high"] < max(row["high"] for row in single)


def test_a_quantity_has_one_number_in_pictures_and_in_the_pages():
    """Pictures show means over their rows; the README and the findings read those of the study's table."""
    config = reading.load(ROOT / "results/reference/paper_gradients/config.yaml")
    figures = reading.load_catalogue(config.catalogue, config).figures
    kept, compared = findings.kept("paper_gradients"), 0
    for figure in figures:
        path = ROOT / f"results/reference/paper_gradients/figures/{figure.paper}/{figure.id}.parquet"
        if figure.study is None or figure.rates == "all" or not path.is_file():
            continue
        rows = pd.read_parquet(path)
        rows = rows[(rows["replica"] >= 0) & (rows["unit"] < 0)].dropna(subset="value")
        for key, group in [*rows.groupby(["run", "source", "variant", "metric"])][::9]:
            run, source, variant, metric = map(str, key)
            found = kept.value(figure.study, metric, run=run, source=source, variant=variant, unit=-1)
            assert group["value"].mean() == pytest.approx(found, rel=1e-12, abs=1e-15), (figure.id, key)
            compared += 1
    assert compared > 30


def test_ratios_of_times_are_the_same_in_the_table_and_in_the_findings():
    rows = pd.read_parquet(ROOT / "results/reference/gpu_table02/figures/tan2024/table02.parquet")
    config = reading.load(ROOT / "results/reference/gpu_table02/config.yaml")
    (figure,) = (each for each in reading.load_catalogue(config.catalogue, config).figures if each.id == "table02")
    text = booktabs(rows, PLOTS.get("table").check(figure.options))
    page = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8").partition("| | plain SGD, s |")[2]
    for name in ("LeNet", "ResNet10", "AlexNet", "VGG16"):
        drawn = next(line for line in text.splitlines() if line.startswith(f"{name} "))
        plain, *shown = re.findall(r"\$\\times\$([\d.]+) \[", drawn)
        assert plain == "1.00"
        told = next(line for line in page.splitlines() if re.match(rf"\| {name} \| [\d.]+ \| \.?\d", line))
        assert [f"{float(cell):.2f}" for cell in told.split(" | ")[2 : 2 + len(shown)]] == shown
        assert "-" not in "".join(re.findall(r"\[([^a-z]*?)\]", drawn))  # no ratio is negative
