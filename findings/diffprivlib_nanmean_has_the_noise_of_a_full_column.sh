#!/usr/bin/env bash
# Expected: nanmean and nanvar of values between 0 and 1, of which some are missing, add noise for one of the values that are there.
# Seen:     the noise is for one of all places, missing ones counted: of 1,000 places with two values, the mean has noise of .0014, and one
#           of the two moves it by .5. StandardScaler uses both functions.
# Versions: diffprivlib 0.6.6, scikit-learn 1.6.1, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    where a share f of a column is there, ε of its mean is 1 / f times the stated one; drop missing values, and take mean and var.
# Source:   diffprivlib/tools/utils.py, _mean and _var: (upper - lower) / array.size
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from diffprivlib import tools

column = np.full(1000, np.nan)
column[:2] = 0.0, 1.0
neighbour = column.copy()
neighbour[1] = 0.0
for function, apart in ((tools.nanmean, 0.5), (tools.nanvar, 0.25)):
    draws = [[function(x, epsilon=1.0, bounds=(0.0, 1.0), random_state=n) for n in range(400)] for x in (column, neighbour)]
    with_it, without = map(np.array, draws)
    least = with_it.min() - without.max()
    print(f"{function.__name__}: {with_it.mean():.3f} with one record, {without.mean():.4f} without, noise {with_it.std():.4f}")
    assert abs(with_it.mean() - apart) < 0.01
    assert least > apart / 2, "the behaviour has changed: one record no longer moves it that far"
whole = [tools.mean(column[:2], epsilon=1.0, bounds=(0.0, 1.0), random_state=n) for n in range(400)]
print(f"mean of the two alone: noise {np.std(whole):.3f}")
assert np.std(whole) > 0.3
PY
