#!/usr/bin/env bash
# Expected: Max and Min of PyDP come near the largest and the smallest record as ε grows, and Max is not below the 99th percentile.
# Seen:     however large ε is, up to 10,000, Max is between the 45th and the 46th largest of 1,000 or 10,000 records: of 1,000 normal
#           ones the 95.5th percentile, 64 where the largest is 78, and Percentile(.99), which is right, is above it. Min likewise.
# Versions: python-dp 1.1.5, numpy 2.4.6
# Date:     2026-11-30
# Means:    ranges for clipping, or for noise, that are taken from both cut 90 records of 1,000, and of small sets 28 %; choose bounds from what
#           a measurement can be, or take Percentile near 0 and 1.
# Source:   pydp/algorithms/laplacian/_bounded_algorithms.py, Max ("computes the Max value in the dataset"); in Google's library beneath it
#           cc/algorithms/binary-search.h, GetDatapoints
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet python-dp==1.1.5 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from pydp.algorithms.laplacian import Max, Min, Percentile

generator = np.random.default_rng(0)


def median_release(kind, records, epsilon, **settings):
    made = [kind(epsilon=epsilon, lower_bound=0.0, upper_bound=100.0, dtype="float", **settings) for _ in range(9)]
    return float(np.median([each.quick_result(records.tolist()) for each in made]))


for number, above in ((100, 14), (1_000, 45), (10_000, 45)):
    records = generator.normal(50, 9, number).clip(0, 100)
    for epsilon in (100.0, 10_000.0):
        largest, smallest = (median_release(kind, records, epsilon) for kind in (Max, Min))
        more, fewer = int((records > largest).sum()), int((records < smallest).sum())
        near = median_release(Percentile, records, epsilon, percentile=0.99)
        print(f"{number} records, ε = {epsilon:.0f}: Max {largest:.1f}, {more} above it, the largest {records.max():.1f}; ", end="")
        print(f"Min {smallest:.1f}, {fewer} below; Percentile(.99) {near:.1f}, true {np.quantile(records, 0.99):.1f}")
        assert abs(more - above) <= 2 and abs(fewer - above) <= 2, "the behaviour has changed"
        if number == 1_000:
            assert largest < near - 3 and abs(near - np.quantile(records, 0.99)) < 1
PY
