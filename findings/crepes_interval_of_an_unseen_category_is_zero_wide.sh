#!/usr/bin/env bash
# Expected: a Mondrian conformal regressor of crepes gives a record whose category no calibration record has an infinite interval, as it gives,
#           with a warning, to categories with too few of them, or an error.
# Seen:     the interval is [0, 0] (with y_min=20 [20, 20]), without a warning, wherever the prediction is; percentiles of a conformal
#           predictive system are 0. With a third of the records from a new site the error at 90 % confidence is .41.
# Versions: crepes 0.9.1, numpy 2.4.6, pandas 3.1.1, scipy 1.17.1, scikit-learn 1.9.1
# Date:     2026-11-30
# Means:    records of a new site, scanner or client are covered never, and the mean width looks the better for it: compare the categories of
#           both sets before, and make these intervals infinite.
# Source:   crepes/base.py, ConformalRegressor.predict_int, intervals = np.zeros((len(y_hat), 2))
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet crepes==0.9.1 numpy==2.4.6 pandas==3.1.1 scipy==1.17.1 scikit-learn==1.9.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import warnings

import numpy as np
from crepes import ConformalPredictiveSystem, ConformalRegressor

generator = np.random.default_rng(0)
residuals = generator.normal(size=550)
sites = np.array(["north"] * 545 + ["south"] * 5)
predicted, asked = np.full(3, 50.0), np.array(["north", "south", "west"])
regressor = ConformalRegressor().fit(residuals=residuals, bins=sites)
system = ConformalPredictiveSystem().fit(residuals=residuals, bins=sites)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    intervals = regressor.predict_int(y_hat=predicted, bins=asked, confidence=0.9)
    bounded = regressor.predict_int(y_hat=predicted, bins=asked, confidence=0.9, y_min=20, y_max=80)
medians = system.predict_percentiles(y_hat=predicted, bins=asked, lower_percentiles=50)
for site, interval, limited, median in zip(asked, intervals, bounded, medians, strict=True):
    print(f"{site}: interval {interval.round(2).tolist()}, within 20 to 80 {limited.round(2).tolist()}, median {median:.2f}")
assert intervals[1].tolist() == [-np.inf, np.inf] and bounded[1].tolist() == [20, 80]
assert said and all("south" in str(warning.message) for warning in said)
assert not any("west" in str(warning.message) for warning in said), "the behaviour has changed"
assert intervals[2].tolist() == [0, 0] and bounded[2].tolist() == [20, 20] and medians[2] == 0, "the behaviour has changed"

even, three = np.repeat(["north", "south"], 500), np.repeat(asked, 1000)
regressor = ConformalRegressor().fit(residuals=generator.normal(size=1000), bins=even)
truth = 50 + generator.normal(size=3000)
found = regressor.evaluate(y_hat=np.full(3000, 50.0), y=truth, bins=three, confidence=0.9)
print(f"a third of the records from a new site: error {found['error']:.3f}, mean width {found['eff_mean']:.2f}")
assert 0.37 < found["error"] < 0.43, "the behaviour has changed"
PY
