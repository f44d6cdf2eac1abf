"""What the opening pages show is what came out: drawn pictures of docs/concepts.md, and numbers of the README."""

import re
import runpy
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


def texts(path: Path) -> list[str]:
    """All that a picture says: labels, and numbers beside curves."""
    return re.findall(r"<text [^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


def test_pictures_of_the_concepts_say_what_their_script_computes(tmp_path):
    script = runpy.run_path(str(PICTURES / "draw.py"))
    script["draw"](tmp_path)
    names = sorted(path.name for path in PICTURES.glob("*.svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        found = texts(tmp_path / name)
        assert found == texts(PICTURES / name)
        assert any(re.search(r"\d", text) for text in found)
    shown = (PICTURES.parent / "concepts.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(pictures/(\w+\.svg)\)", shown)) == names
    assert texts(PICTURES / "capacity_leakage_error.svg").count("56") == 1  # that page tells this number
    assert "average 4.07" in texts(PICTURES / "average_and_every_record.svg")


@pytest.mark.parametrize(
    ("defense", "level"),
    [("none", None), ("natural", 300.0), ("natural", 50.0), ("white", 1000.0), ("dpsgd", 0.2066), ("dpsgd", 0.8)],
)
def test_numbers_of_the_readme_are_those_of_the_kept_run(defense, level):
    table = pd.read_parquet(ROOT / "results" / "reference" / "pilot" / "tables" / "comparison.parquet")
    rows = table[(table["defense"] == defense) & table["chosen"] & (table["status"].astype(str) == "")]
    rows = rows if level is None else rows[rows["level"] == level]
    accuracy = rows.loc[rows["metric"] == "test_accuracy", "value"]
    auc = rows.loc[(rows["metric"] == "auc") & (rows["variant"] == "white_box"), "value"]
    assert len(accuracy) == len(auc) == 10
    told = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What came out")[2].partition("## What you")[0]
    numbers = [f"{rows.mean():.3f}".removeprefix("0") for rows in (accuracy, auc)]
    assert re.search(rf"{re.escape(numbers[0])}\b(?:(?!\.\d\d\d).)*{re.escape(numbers[1])}\b", told, re.S), numbers
