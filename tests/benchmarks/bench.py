"""All measurements of docs/performance.md: paired in one process, in turns, in a given time.

    python tests/benchmarks/bench.py [--minutes 18] [--quick] [--sections steps growth] [--out DIRECTORY]

Writes ``bench.parquet``, ``bench.json``, its provenance, and pictures; prints a table. Each section has a share of the
minutes and goes through its cases in turns, every second one backwards, until the share is used up, three at least.
A ratio is taken within a turn, and so is an exponent of growth: load on the machine slows all cases alike. Values are
medians over turns, with quartiles.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bench_sections as sections
import numpy as np
import pandas as pd
import torch
from bench_pictures import draw
from growth import in_turns, slopes
from training_step import quartiles

from leakbound.storage import provenance

logger = logging.getLogger("leakbound")
SHARES = {
    "steps": (sections.steps, 0.25, 1),
    "large steps": (sections.large_steps, 0.15, 2),
    "noise": (sections.noise, 0.15, 1),
    "calibration": (sections.calibration, 0.2, 2),
    "inversion": (sections.inversion, 0.05, 1),
    "references": (sections.references, 0.05, 1),
    "scores": (sections.scores, 0.05, 1),
    "growth": (sections.growth, 0.1, 8),
}
"""Section to what measures it, its share of the time, and into how many groups that is divided."""
OUT = Path("results/reference/benchmarks")


def summarized(found: sections.Found, times: pd.DataFrame) -> Iterator[dict[str, object]]:
    """Rows of one group of cases: seconds of a unit, ratios to its baseline, and exponents of its growth."""
    turns = times.pivot(index="turn", columns="case", values="seconds")
    shared = {"section": found.section, "group": found.group, "turns": len(turns)}
    for case in turns:
        unit = turns[case] / found.units.get(case, 1.0)
        size = found.sizes.get(case, np.nan)
        yield {**shared, "case": case, "size": size, "metric": "seconds", "expected": np.nan, **quartiles(unit)}
        if found.baseline is not None:
            ratio = unit / (turns[found.baseline] / found.units.get(found.baseline, 1.0))
            goal = found.goals.get(case, np.nan)
            yield {**shared, "case": case, "size": size, "metric": "ratio", "expected": goal, **quartiles(ratio)}
    if found.exponent is not None:
        exponent = {"case": found.group, "size": np.nan, "metric": "exponent", "expected": found.exponent}
        yield {**shared, **exponent, **quartiles(slopes(times, found.sizes))}


def measured(names: list[str], minutes: float, *, wide: bool) -> pd.DataFrame:
    """Rows of some sections."""
    rows: list[dict[str, object]] = []
    total = sum(SHARES[name][1] for name in names)
    for name in names:
        make, share, groups = SHARES[name]
        for found in make(wide):
            seconds = 60 * minutes * share / total / groups
            logger.info("%s: %s", name, found.group)
            times = in_turns(found.cases, seconds) if found.measure is None else found.measure(seconds)
            rows += summarized(found, times)
    return pd.DataFrame(rows)


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=18.0, help="time for all sections together")
    parser.add_argument("--quick", action="store_true", help="4 minutes, small sizes")
    parser.add_argument("--sections", nargs="+", choices=list(SHARES), default=list(SHARES))
    parser.add_argument("--out", type=Path, default=OUT, help="folder to write to")
    asked = parser.parse_args()
    logging.basicConfig(format="%(message)s", level=logging.INFO, force=True)
    sys.path.append(str(Path(__file__).parents[2] / "tools"))
    from replaced_folders import replaced_folder

    torch.set_num_threads(1)
    began = time.perf_counter()
    minutes = 4.0 if asked.quick else asked.minutes
    settings = {"sections": asked.sections, "minutes": minutes, "quick": asked.quick}
    facts = provenance.collect(settings, inputs={}, device="cpu", seconds=0.0)  # of the code before anybody edits it
    rows = measured(asked.sections, minutes, wide=not asked.quick)
    facts["seconds"] = round(time.perf_counter() - began, 3)
    asked.out.mkdir(parents=True, exist_ok=True)
    with replaced_folder(asked.out) as folder:
        draw(rows, folder)
        rows.to_parquet(folder / "bench.parquet", index=False, compression="zstd")
        (folder / "bench.json").write_text(json.dumps(facts, indent=2, sort_keys=True) + "\n")
    for row in rows.itertuples():
        bounds = "" if np.isnan(row.expected) else f"   expected {row.expected:g}"
        value = f"{row.value:10.4g} ({row.low:.4g} to {row.high:.4g})"
        print(f"{row.group:<28} {row.case:<26} {row.metric:<9} {value}{bounds}")


if __name__ == "__main__":
    main()
