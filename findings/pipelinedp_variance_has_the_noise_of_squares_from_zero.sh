#!/usr/bin/env bash
# Expected: the variance of PipelineDP depends on how far the bounds are apart, and not on where zero is: a record between L and U adds at most
#           (U - L)² / 4 to the sum of squares about the middle, and noise is for that.
# Seen:     noise is for (largest square - smallest square) / 2 of the bounds themselves: between -3 and 3 for 4.5, where a record adds 9,
#           and between 36 and 42 for 234. At ε = 3 an event has about 500 of 4,000 releases with a record at the edge and 9 without it: e^4.
# Versions: pipeline-dp 0.3.1, python-dp 1.1.5, numpy 2.4.6, scipy 1.17.1, dill 0.4.0
# Date:     2026-11-30
# Means:    between bounds about zero (standardized features) ε of count, mean and variance is up to 4/3 of the stated one; far from zero, as with
#           temperatures, the noise is 26 times what is needed. Shift values to begin at zero: noise is then for twice of what a record adds.
# Source:   pipeline_dp/dp_computations.py, compute_dp_var and compute_squares_interval; combiners.py, VarianceCombiner.create_accumulator
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pipeline-dp==0.3.1 python-dp==1.1.5 numpy==2.4.6 scipy==1.17.1 dill==0.4.0
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import pipeline_dp

metrics = [pipeline_dp.Metrics.COUNT, pipeline_dp.Metrics.MEAN, pipeline_dp.Metrics.VARIANCE]


def releases(low, high, values, draws):
    """Noisy counts, sums and sums of squares about the middle, at ε = 3, a third of it for each."""
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=3.0, total_delta=1e-10)
    engine = pipeline_dp.DPEngine(accountant, pipeline_dp.LocalBackend())
    params = pipeline_dp.AggregateParams(
        metrics=metrics,
        noise_kind=pipeline_dp.NoiseKind.LAPLACE,
        max_partitions_contributed=1,
        max_contributions_per_partition=1,
        min_value=low,
        max_value=high,
    )
    # The draws are groups with persons of their own, so each has the noise of one release.
    rows = [(group, (group, person), value) for group in range(draws) for person, value in enumerate(values)]
    extractors = pipeline_dp.DataExtractors(
        partition_extractor=lambda row: row[0], privacy_id_extractor=lambda row: row[1], value_extractor=lambda row: row[2]
    )
    released = engine.aggregate(rows, params, extractors, public_partitions=list(range(draws)))
    accountant.compute_budgets()
    found = np.array([(each.count, each.mean - (low + high) / 2, each.variance) for _, each in released])
    counts, means, variances = found.T
    return counts, means * counts, (variances + means**2) * counts


for low, high, noise_for in ((-3, 3, 4.5), (0, 6, 18), (36, 42, 234)):
    counts, sums, squares = releases(low, high, [(low + high) / 2] * 12, 800)
    scales = [float(np.mean(np.abs(each - np.median(each)))) for each in (counts, sums, squares)]
    print(f"from {low} to {high}: noise of the count for {scales[0]:.2f}, of the sum {scales[1]:.2f}, of squares {scales[2]:.1f}; a record adds 9")
    assert abs(scales[0] - 1) < 0.15 and abs(scales[1] - 3) < 0.5, "the behaviour has changed"
    assert abs(scales[2] / noise_for - 1) < 0.15, "the behaviour has changed"

events = []
for values in ([0.0] * 12 + [3.0], [0.0] * 12):
    counts, sums, squares = releases(-3, 3, values, 4000)
    events.append(int(np.sum((counts > 13) & (sums > 3) & (squares > 9))))
print(f"event with the record {events[0]}, without it {events[1]} of 4,000: e^{np.log(events[0] / max(events[1], 1)):.1f}, and ε is 3")
assert events[0] > 400 and events[1] < 20, "the behaviour has changed"  # e^3 allows no less than 20
PY
