"""What ``tools/power.py`` promises, from the spread between blocks of finished results."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from leakbound import storage
from leakbound_lab.claims.judging import Design
from power import app

ROOT = Path(__file__).parents[1]
CONFIG = """
preset: planned
replicas: 5
catalogue: figures.yaml
datasets:
  digits: {members: 200, test: 200, aux: 200}
  mine: {reader: digits, members: 200, test: 200, aux: 200}
studies:
  shapes: {datasets: [digits, mine], models: [lenet], defenses: {none: [], natural: [4.0], white: [4.0]}, rounds: [10]}
tracking: {enabled: false}
"""
FIGURES = """
figures:
  - id: shapes_trained
    paper: beyond
    title: t
    study: shapes
    plot: levels
    caption: c
    claims:
      - id: above
        text: Natural is above white.
        test: greater
        delta: 0.25
        unit: accuracy
        options: {where: {metric: test_accuracy}, a: {defense: natural}, b: {defense: white}}
      - {id: absent, text: T., test: increasing, delta: 0.1, unit: AUC, options: {where: {metric: auc}}}
      - {id: exact, text: T., test: equals, options: {a: {metric: test_accuracy}, value: 1.0}}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("planned.yaml").write_text(CONFIG)
    Path("figures.yaml").write_text(FIGURES)
    return tmp_path


def planned(*words: str) -> str:
    return CliRunner().invoke(app, ["--configfile", "planned.yaml", *words], catch_exceptions=False).output


def finish(root: str, spread: float) -> None:
    """Leave results of four blocks of two datasets; differences of natural and white have this spread in each."""
    rows = [
        (f"{defense}-4", dataset, "lenet", defense, 4.0, replica, "test_accuracy", value)
        for place, dataset in enumerate(("digits", "mine"))
        for replica, half in enumerate((-0.5, 0.5))
        for defense, value in (("natural", place + spread * half * 2**0.5), ("white", 0.0))
    ]
    names = ["run", "dataset", "model", "defense", "level", "replica", "metric", "value"]
    storage.write_rows(Path(root) / "tables" / "shapes.parquet", pd.DataFrame(rows, columns=names))


def test_power_is_that_of_the_spread_between_blocks_and_the_planned_replicas(folder):
    finish("results/reference/photos", 0.3)
    text = planned()
    assert "with the spread between the blocks of results/reference/photos" in text
    line = re.search(r"above .*", text).group().split()
    expected = Design("beyond", 0.25, (0.3,), (), 0, 0.05 / 2)
    powers = " ".join(f"{expected.power(10, n):.2f}" for n in (2.0, 1.0))
    assert " ".join(line) == f"above 0.25 accuracy 0.3 2 x 5 {powers} 4"
    assert expected.needed() in (7, 8)  # 4 replicas of both datasets
    assert re.search(r"absent +0.1 AUC +– +2 x 5 +– +– +–", text)
    assert "2 claims about experiments: 1 detect 2 delta with power 0.8, 0 do not, and for 1 the spread" in text
    assert "1 closed forms" in text


def test_own_results_come_before_the_reference_and_others_by_name(folder):
    finish("results/reference/photos", 0.3)
    finish("results/planned", 0.6)
    finish("elsewhere", 0.9)
    assert re.search(r"of results/planned\n(?s:.*)above +0.25 accuracy +0.6 ", planned())
    assert re.search(r"of elsewhere\n(?s:.*)above +0.25 accuracy +0.9 ", planned("--variances", "elsewhere"))
    assert "nowhere has no tables" in planned("--variances", "nowhere").replace("\n", " ")


def test_diverged_and_unchosen_rows_do_not_count(folder):
    finish("results/planned", 0.3)
    path = Path("results/planned/tables/shapes.parquet")
    rows = storage.read_rows(path)
    more = rows.assign(value=rows["value"] * 9)
    storage.write_rows(path, pd.concat([rows.assign(chosen=True), more.assign(chosen=False)]))
    assert re.search(r"above +0.25 accuracy +0.3 ", planned())
    storage.write_rows(path, rows.assign(value=np.nan))
    assert re.search(r"above +0.25 accuracy +– ", planned())


@pytest.mark.parametrize("name", ["figures", "keep", "pool", "power"])
def test_programs_end_mistakes_in_one_message(tmp_path, name):
    words = {"figures": ["--folder", "nowhere"], "pool": ["nowhere", "nowhere", "--out", "new"]}
    program = [sys.executable, str(ROOT / "tools" / f"{name}.py")]
    options = words.get(name, ["--configfile", "nowhere.yaml"])
    done = subprocess.run([*program, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"leakbound: nowhere\S*: .*\n", done.stderr), done.stderr
    assert not list(tmp_path.iterdir())
