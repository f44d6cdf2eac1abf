#!/usr/bin/env bash
# Expected: LogisticRegression with data_norm=R clips records to the norm R and holds its ε for any R.
# Seen:     the curvature of one record's loss, R² / 4, is counted as R / 4, which is right for R = 1 alone. With R = 1,000 and ε = 1 a
#           coefficient lies within ±.003 in none of 300 fits without one of 20 records, and in 34 with it: ε is above 1.4, and 5.5 by the formula.
# Versions: diffprivlib 0.6.6, scikit-learn 1.6.1, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    features in their own units (blood pressure, income) have more than the stated ε: divide them by R, and set data_norm=1.
# Source:   diffprivlib/mechanisms/vector.py, randomise; Chaudhuri et al., Differentially private empirical risk minimization, Theorem 9
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6 scipy==1.17.1
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 "$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from diffprivlib.models import LogisticRegression
from scipy.stats import binomtest


def near_zero(norm, record, width, epsilon=1.0, runs=300):
    features, labels = np.zeros((20, 1)), np.arange(20) % 2
    features[0] = record
    model = dict(epsilon=epsilon, data_norm=norm, fit_intercept=False)
    fits = [LogisticRegression(**model, random_state=n).fit(features, labels).coef_[0, 0] for n in range(runs)]
    count = int(np.sum(np.abs(fits) < width))
    return count, binomtest(count, runs).proportion_ci(0.99)


found = {}
for norm, width in ((1.0, 3.0), (1000.0, 0.003)):
    without, with_it = near_zero(norm, 0.0, width), near_zero(norm, norm, width)
    found[norm] = np.log(with_it[1].low / without[1].high)
    print(f"norm {norm:g}: within ±{width}: {without[0]} of 300 without one record, {with_it[0]} with it; ε is above {found[norm]:.2f}")
assert found[1.0] < 1.0
assert found[1000.0] > 1.0, "the behaviour has changed"
PY
