#!/usr/bin/env bash
# Expected: LinearRegression adds noise to the sum of squares of a feature for the larger of its two bounds, squared: 100 for (0, 10).
# Seen:     the lower bound is taken twice: with bounds (0, 10) and no intercept the sensitivity is 0, and the sum of squares stays exact.
#           With an intercept bounds are centred first: of a feature with mean 1 the sensitivity is about 1 where 81 is needed.
# Versions: diffprivlib 0.6.6, scikit-learn 1.6.1, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    the coefficients of features that are skewed to their lower bound (doses, counts, lengths of stay) do not have the stated ε. Shift
#           features to symmetric bounds, (-5, 5) here, and fit without an intercept, or with a column of ones.
# Source:   diffprivlib/models/linear_regression.py, _construct_regression_obj: np.abs([bounds_X[0][i], bounds_X[0][i]])
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet diffprivlib==0.6.6 scikit-learn==1.6.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from diffprivlib.models import LinearRegression, linear_regression

seen = []


class Recorded(linear_regression.LaplaceFolded):
    def randomise(self, value):
        result = super().randomise(value)
        seen.append((float(self.sensitivity), float(value), float(result)))
        return result


linear_regression.LaplaceFolded = Recorded
dose = np.minimum(np.random.default_rng(0).exponential(1.0, (2000, 1)), 10.0)
answer = np.minimum(2 * dose[:, 0], 20.0)
needed, found = {}, {}
for intercept in (False, True):
    seen.clear()
    model = LinearRegression(epsilon=1.0, bounds_X=(0, 10), bounds_y=(0, 20), fit_intercept=intercept, random_state=0)
    model.fit(dose, answer)
    sensitivity, exact, noisy = seen[-1]
    found[intercept] = sensitivity
    needed[intercept] = 81.0 if intercept else 100.0
    print(f"intercept {intercept}: sensitivity {sensitivity:.2f} where {needed[intercept]:.0f} is needed; {exact:.3f} is released as {noisy:.3f}")
    assert intercept or noisy == exact, "the behaviour has changed: the sum of squares has noise"
LinearRegression(epsilon=1.0, bounds_X=(-5, 5), bounds_y=(0, 20), fit_intercept=False, random_state=0).fit(dose - 5, answer)
print(f"without an intercept, shifted to (-5, 5): sensitivity {seen[-1][0]:.0f}, as it should be")
assert found[False] == 0.0
assert found[True] < needed[True] / 20
assert seen[-1][0] == 25.0
PY
