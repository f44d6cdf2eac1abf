#!/usr/bin/env bash
# Expected: DCROverfittingProtection of SDMetrics measures the distance of a synthetic record to training and validation records on one scale.
#           Of records drawn from one distribution half are closer to the training set; noisy copies of training records are so more often.
# Seen:     each distance is divided by the range of the set that it is measured to, and the set with the largest value is the nearer one. Of
#           four log-normal columns 18 to 72 % of independent records are closer to training, by the draw; with one scale it is 45 to 53 %.
#           Copies with noise of 25 % get the full score of 1: 39 % are called closer to training, where 63 % are on one scale.
# Versions: sdmetrics 0.32.0, numpy 2.4.6, pandas 2.3.3, scikit-learn 1.9.1
# Date:     2026-11-30
# Means:    with skewed columns (incomes, laboratory values) such a score says which set has the largest value, and noisy copies pass: take
#           logarithms or ranks over both sets before protected or synthetic records are judged.
# Source:   sdmetrics/single_table/privacy/dcr_utils.py, calculate_dcr, col_range = reference[col_name].max() - ..., called for each set
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet sdmetrics==0.32.0 numpy==2.4.6 pandas==2.3.3 scikit-learn==1.9.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import pandas as pd
from sdmetrics.single_table import DCROverfittingProtection

generator = np.random.default_rng(0)
names = ["income", "creatinine", "troponin", "days"]
metadata = {"tables": {"people": {"columns": {name: {"sdtype": "numerical"} for name in names}}}}


def people(number=400):
    return pd.DataFrame(np.exp(generator.normal(0, 1, (number, len(names)))), columns=names)


def by_library(training, synthetic, validation):
    found = DCROverfittingProtection.compute_breakdown(training, synthetic, validation, metadata, "people")
    return float(found["synthetic_data_percentages"]["closer_to_training"]), float(found["score"])


def on_one_scale(training, synthetic, validation):
    both = pd.concat([training, validation])
    scale = (both.max() - both.min()).to_numpy()

    def nearest(others):
        return (np.abs(synthetic.to_numpy()[:, None] - others.to_numpy()) / scale).sum(axis=2).min(axis=1)

    return float(np.mean(nearest(training) < nearest(validation)))


shares, hands = [], []
for _ in range(8):
    training, synthetic, validation = people(), people(), people()
    share, score = by_library(training, synthetic, validation)
    shares.append(share)
    hands.append(on_one_scale(training, synthetic, validation))
    print(f"independent records: closer to training {share:.0%}, score {score:.2f}; on one scale {hands[-1]:.0%}")
assert min(shares) < 0.25 and max(shares) > 0.65, "the behaviour has changed"
assert 0.42 < min(hands) and max(hands) < 0.58

copies = training * np.exp(generator.normal(0, 0.25, training.shape))
share, score = by_library(training, copies, validation)
hand = on_one_scale(training, copies, validation)
print(f"noisy copies of training records: closer to training {share:.0%}, score {score:.2f}; on one scale {hand:.0%}")
assert hand > 0.6 and share < 0.5 and score == 1, "the behaviour has changed"

logarithms = [np.log(each) for each in (training, copies, validation)]
share, score = by_library(*logarithms)
print(f"the same, logarithms: closer to training {share:.0%}, score {score:.2f}; on one scale {on_one_scale(*logarithms):.0%}")
assert share > 0.55
PY
