#!/usr/bin/env bash
# Expected: StandardScaler of SmartNoise Synth with bounds from 0 to 100 spends its budget on a noisy mean and variance: the mean of 1,000
#           records moves by up to .1 with one of them, and at ε = 1, a fifth of which is for the mean, has Laplace noise of scale .5.
# Seen:     both are those of the records to nine digits, and the whole ε is spent. With the number of records fixed, OpenDP counts two
#           changes for a record that is exchanged; the scale is sought for one, which changes nothing, and comes out as near 0.
# Versions: smartnoise-synth 1.0.8, smartnoise-sql 1.0.10, opendp 0.14.1, numpy 2.4.6, pandas 2.3.3
# Date:     2026-11-30
# Means:    synthetic records that are scaled back by it carry the exact mean and variance of each column, whatever ε is said to be; take
#           MinMaxTransformer with bounds of your own, which needs no budget.
# Source:   snsynth/transform/standard.py, dp.vector_domain(..., size=n) and binary_search_param(..., d_in=1, ...)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet smartnoise-sql==1.0.10 opendp==0.14.1 numpy==2.4.6 pandas==2.3.3
"$folder/venv/bin/python" -m pip install --quiet Faker==40.63.0
"$folder/venv/bin/python" -m pip install --quiet --no-deps smartnoise-synth==1.0.8
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import opendp.prelude as dp
from snsynth.transform import StandardScaler, TableTransformer

ages = np.random.default_rng(0).normal(50, 9, 1000).clip(0, 100)
exchanged = np.append(ages[:-1], 100.0)


def released(records, epsilon):
    table = TableTransformer([StandardScaler(lower=0, upper=100, epsilon=epsilon)])
    table.fit([(age,) for age in records])
    assert table.transformers[0].budget_spent == [epsilon]
    return float(table.transformers[0].mean), float(table.transformers[0].var)


for epsilon in (0.01, 1.0):
    draws = np.array([released(ages, epsilon) for _ in range(20)])
    errors = np.abs(draws - [ages.mean(), ages.var(ddof=1)]).max(axis=0)
    apart = min(released(exchanged, epsilon)[0] for _ in range(20)) - draws[:, 0].max()
    print(f"ε = {epsilon}: largest errors {errors[0]:.1e}, {errors[1]:.1e}; another record: the mean is {apart:.3f} above all others")
    assert errors.max() < 1e-5 and apart > 0.04, "the behaviour has changed"

dp.enable_features("contrib", "floating-point")
space = dp.vector_domain(dp.atom_domain(bounds=(0.0, 100.0), nan=False), size=1000), dp.symmetric_distance()
mean = space >> dp.t.then_mean()
print(f"OpenDP's mean: {mean.map(1):.3g} for one change, {mean.map(2):.3g} for two, an exchange")
assert mean.map(1) < 1e-9 and abs(mean.map(2) - 0.1) < 1e-6
noise = space >> dp.t.then_mean() >> dp.m.then_laplace(0.5)
print(f"scale .5: ε {noise.map(2):.3f} for an exchange")
assert abs(noise.map(2) - 0.2) < 1e-6
assert abs((exchanged.mean() - ages.mean()) - (100 - ages[-1]) / 1000) < 1e-9
PY
