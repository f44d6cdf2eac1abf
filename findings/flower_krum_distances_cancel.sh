#!/usr/bin/env bash
# Expected: Krum and MultiKrum of Flower compare clients by the squared distances between their weights.
# Seen:     distances are |x|² + |y|² − 2xy in the clients' float32. Of models of a million weights near 1 whose updates are 1e-4
#           each, all true squared distances are .02; computed ones are off by up to 3, and some clients are at another place than
#           themselves.
# Versions: flwr 1.42.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    late in a training such a server picks clients by rounding errors.
# Source:   flwr/serverapp/strategy/multikrum.py, compute_distances
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FLWR_HOME=$folder/flwr FLWR_TELEMETRY_ENABLED=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flwr==1.42.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from flwr.app import ArrayRecord
from flwr.common import Array
from flwr.serverapp.strategy.multikrum import compute_distances

generator = np.random.default_rng(0)
start = generator.standard_normal(1_000_000, dtype=np.float32)
models = [start + np.float32(1e-4) * generator.standard_normal(start.size, dtype=np.float32) for _ in range(5)]
found = compute_distances([ArrayRecord({"weights": Array(model)}) for model in models])
exact = np.array([[np.square(a.astype(float) - b).sum() for b in models] for a in models])
print("Flower:\n", found.round(3), "\nin float64:\n", exact.round(3))
assert 0.019 < exact[~np.eye(5, dtype=bool)].min() and exact.max() < 0.021
assert np.abs(found - exact).max() > 10 * 0.02, "the behaviour has changed: distances are right"
assert np.diag(found).any()
PY
