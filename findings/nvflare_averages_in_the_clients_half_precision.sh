#!/usr/bin/env bash
# Expected: a server that averages uploads of float16 sums in float32 or more.
# Seen:     it sums in float16, each upload times its weight: 100 clients with weights of 2 and 1,000 steps each end as inf,
#           with no more than a NumPy warning. Whole numbers, in contrast, become float64.
# Versions: nvflare 2.9.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    uploads that clients halve to save bandwidth need converting before they are averaged by numbers of steps or examples.
# Source:   nvflare/app_common/aggregators/weighted_aggregation_helper.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nvflare==2.9.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper


def average(kind):
    helper = WeightedAggregationHelper()
    for number in range(100):
        helper.add({"weights": np.full(2, 2, dtype=kind)}, 1000, f"site-{number}", 0)
    return helper.get_result()["weights"]


found = {kind.__name__: average(kind) for kind in (np.float16, np.float32, np.int64)}
for kind, weights in found.items():
    print(f"mean of 100 uploads of 2 in {kind}: {weights} ({weights.dtype})")
assert found["float32"].tolist() == found["int64"].tolist() == [2.0, 2.0]
assert np.isinf(found["float16"]).all(), "the behaviour has changed"
assert found["int64"].dtype == np.float64
PY
