#!/usr/bin/env bash
# Expected: a layer that one of ten clients uploads enters the average with a tenth (as an update), or the round is refused.
# Seen:     each name is averaged over the clients that sent it: the layer of the one client is the average, unchanged.
# Versions: nvflare 2.9.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    clients that upload only some layers lose the crowd they hide in: for such a layer the published average is one upload.
# Source:   nvflare/app_common/aggregators/weighted_aggregation_helper.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nvflare==2.9.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

helper = WeightedAggregationHelper()
own = np.array([0.25, -7.5])
for number in range(10):
    upload = {"body": np.full(2, float(number))}
    if number == 0:
        upload["head"] = own.copy()
    helper.add(upload, 100, f"site-{number}", 0)
found = helper.get_result()
print(f"body, sent by ten: {found['body']}; head, sent by one as {own}: {found['head']}")
assert found["body"].tolist() == [4.5, 4.5]
assert found["head"].tolist() == own.tolist(), "the behaviour has changed"
PY
