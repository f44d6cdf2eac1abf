#!/usr/bin/env bash
# Expected: a histogram with weights has noise for the largest weight, or is refused; small weights are summed and then released.
# Seen:     the noise is that of a count, whatever the weights: at ε = 1 it stays below 20, and a record of weight 100 moves its bin by 100.
#           The sum is cut to a whole number before: 900 records of weight .001 are counted as 0.
# Versions: diffprivlib 0.6.6, scikit-learn 1.6.1, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    ε of a weighted histogram (days in hospital, sampling weights) is the largest weight times the stated one: divide the weights by
#           it and the result back, in steps that are small against 1.
# Source:   diffprivlib/tools/histograms.py: GeometricTruncated(epsilon=epsilon, sensitivity=1, ...)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from diffprivlib import tools


def released(records, weight):
    values, weights = np.full(records, 0.5), np.full(records, weight)
    draws = [tools.histogram(values, epsilon=1.0, bins=1, range=(0, 1), weights=weights, random_state=n) for n in range(300)]
    return np.array([counts[0] for counts, _ in draws])


with_it, without, small = released(900, 100.0), released(899, 100.0), released(900, 0.001)
print(f"weights of 100, 900 records: {with_it.min():.0f} to {with_it.max():.0f}; 899: {without.min():.0f} to {without.max():.0f}")
print(f"weights of .001, 900 records, whose sum is .9: median {np.median(small):.0f}")
assert with_it.min() - without.max() > 50, "the behaviour has changed: one record can no longer be seen"
assert np.median(small) == 0
PY
