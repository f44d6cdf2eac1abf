"""Arithmetic of the benchmark: ratios and exponents within a turn, turns in both orders."""

from pathlib import Path

import bench
import bench_sections as sections
import numpy as np
import pandas as pd
import pytest
import sizes
from bench_pictures import draw
from growth import boxes, in_turns, round_box
from training_step import requests

REPOSITORY = Path(__file__).parents[2]


def turns(seconds: dict[str, list[float]]) -> pd.DataFrame:
    rows = [(case, turn, value) for case, values in seconds.items() for turn, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["case", "turn", "seconds"])


def found(rows: pd.DataFrame, case: str, metric: str) -> tuple[float, float, float]:
    (row,) = rows[(rows["case"] == case) & (rows["metric"] == metric)].itertuples()
    return row.low, row.value, row.high


def test_ratios_are_taken_within_a_turn_and_per_unit():
    """A machine that slows down tenfold for a turn changes no ratio."""
    times = turns({"plain": [1.0, 10.0, 1.0], "other": [6.0, 60.0, 6.0]})
    group = sections.Found("s", "g", baseline="plain", units={"other": 4.0}, goals={"other": 1.4})
    rows = pd.DataFrame(bench.summarized(group, times))
    assert found(rows, "other", "ratio") == (1.5, 1.5, 1.5)
    assert found(rows, "plain", "ratio") == (1.0, 1.0, 1.0)
    assert found(rows, "other", "seconds") == (1.5, 1.5, 8.25)
    assert rows[rows["metric"] == "ratio"].set_index("case")["expected"]["other"] == 1.4


def test_exponents_are_those_of_the_power_law_of_each_turn():
    load = np.array([1.0, 30.0, 2.0])
    times = turns({str(size): list(load * 1e-3 * size**2.5) for size in (8, 64, 512)})
    group = sections.Found("s", "g", sizes={str(size): float(size) for size in (8, 64, 512)}, exponent=3)
    rows = pd.DataFrame(bench.summarized(group, times))
    assert found(rows, "g", "exponent") == pytest.approx((2.5, 2.5, 2.5))


def test_cases_take_turns_in_both_orders_and_at_least_three_of_them():
    calls = []
    cases = {name: lambda name=name: calls.append(name) for name in "ab"}
    times = in_turns(cases, seconds=0.0)
    assert "".join(calls) == "ba" + "ab" + "ba" + "ab"
    assert times["turn"].tolist() == [0, 0, 1, 1, 2, 2]


def test_pictures_show_ratios_with_their_goals_and_growth_with_its_exponents(tmp_path):
    """Drawn from the kept rows, as docs/performance.md shows them."""
    rows = pd.read_parquet(REPOSITORY / "results" / "reference" / "benchmarks" / "bench.parquet")
    draw(rows, tmp_path)
    found = {path.name: path.read_text() for path in tmp_path.glob("*.svg")}
    assert set(found) == {"steps.svg", "noise.svg", "growth.svg"}
    steps = rows[(rows["section"] == "steps") & (rows["metric"] == "ratio")]
    for case in set(steps["case"]) - {"none"}:
        assert case.replace("_", " ") in found["steps.svg"]
    assert "goal" in found["steps.svg"]
    assert "expected growth" in found["growth.svg"]


def test_every_box_has_work_over_its_sizes():
    plain = requests("mlp", 32, ["none"], (1, 32, 32))["none"]
    for box in (*boxes(plain), round_box(plain)):
        times = in_turns(box.cases(), 1e-9)
        assert (times["seconds"] > 0).all()
        assert set(times.groupby("case").size()) == {3}


def test_exponents_of_sizes_are_those_between_the_two_largest():
    """The smallest has a start that does not grow."""
    measured = [{"size": size, "seconds": 3.0 + size**2, "memory": 5.0 * size} for size in (1.0, 1e4, 1e6)]
    rows = pd.DataFrame(sizes.rows_of("protect", measured)).set_index("metric")["value"]
    assert rows["exponent"] == pytest.approx(2.0, abs=1e-6)
    assert rows["exponent of memory"] == pytest.approx(1.0)
    assert "exponent of bytes" not in rows
    assert sorted(rows["seconds"]) == [4.0, 3.0 + 1e8, 3.0 + 1e12]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"), [(name, 2 if case.over == "rows" else 8) for name, case in sizes.CASES.items()]
)
def test_every_size_is_counted(name, size):
    """Copies of rows are as many rows more; a ledger, the copies, a store and a page lie on the disk."""
    counts = sizes.measure(name, size)
    assert counts["seconds"] > 0
    assert counts["memory"] > 2**20
    assert ("bytes" in counts) == (name not in ("planning", "verdicts"))
    if name in ("verdicts", "page"):
        assert counts["size"] == size * sizes.measure(name, 1)["size"]
