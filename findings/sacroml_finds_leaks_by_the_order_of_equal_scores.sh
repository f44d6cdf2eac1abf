#!/usr/bin/env bash
# Expected: an attack that gives every record the same score finds nothing, whatever the order of the records: the frequency of members
#           among the tenth with the highest scores minus that among the lowest (FDIF01) is about 0. permute_rows=True, the default, sees to it.
# Seen:     rows are not permuted. With members last FDIF01 is 1 with a p-value of e^-115, with members first it is -1; AUC is .5 in both.
#           Of an attack whose upper fifth holds 60 % members the frequency is 1 or .96, and .6 once the records are permuted before.
# Versions: sacroml 2.0.1, scikit-learn 1.9.1, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    scores with ties (of trees, of few shadow models, of labels) are judged by the order of the records: a leak is reported where there
#           is none, or hidden. Permute the records yourself before get_metrics.
# Source:   sacroml/metrics.py, _permute_rows (it sets its own names, not its arguments) and min_max_disc
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet scikit-learn==1.9.1 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -m pip install --quiet --no-deps sacroml==2.0.1
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from sacroml.metrics import get_metrics

members = np.repeat([1, 0], 500)


def judged(member, score):
    found = get_metrics(np.column_stack([1 - score, score]), member.copy(), permute_rows=True)
    return {name: float(found[name]) for name in ("AUC", "FMAX01", "FDIF01", "PDIF01")}


blind = {"first": judged(members, np.full(1000, 0.5)), "last": judged(members[::-1], np.full(1000, 0.5))}
upper = np.zeros(1000)
upper[:120] = upper[500:580] = 1.0  # 120 members and 80 others have the higher score
ranked = {"first": judged(members, upper), "last": judged(members[::-1], upper[::-1])}
order = np.random.default_rng(0).permutation(1000)
mixed = judged(members[order], upper[order])
for place in ("first", "last"):
    print(f"members {place}: equal scores {blind[place]}, two scores {ranked[place]}")
print(f"permuted before: two scores {mixed}")
assert blind["first"]["AUC"] == blind["last"]["AUC"] == 0.5
assert blind["first"]["FDIF01"] < -0.5 and blind["last"]["FDIF01"] > 0.5, "the behaviour has changed"
assert blind["last"]["PDIF01"] > 20
assert max(abs(found["FMAX01"] - 0.6) for found in ranked.values()) > 0.2
assert abs(mixed["FMAX01"] - 0.6) < 0.15
PY
