#!/usr/bin/env bash
# Expected: weights that go through the finite field of FedML's LightSecAgg are summed right, or are refused where the sum does not fit.
# Seen:     with the prime 1997 and the 10 bits of FedML's example the field holds sums from −.97 to .97: the average of two clients whose
#           weight is .6 is −.376. With 2^15 − 19 it holds sums to 16, and 50 clients whose weight is .5 average to −.14. Nothing is raised.
# Versions: fedml 0.9.6, torch 2.13.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    large weights turn their sign once enough clients take part: choose a prime above 2 · clients · largest weight · 2^precision.
# Source:   fedml/core/mpc/secagg.py, my_q and my_q_inv; fedml_config.yaml of FedML's light_sec_agg_example
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" -m pip install --quiet --no-deps fedml==0.9.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import runpy
from importlib.util import find_spec
from pathlib import Path

import numpy as np

# The module by itself: the package starts the agent of a platform when it is imported.
package = Path(find_spec("fedml").submodule_search_locations[0])
field = runpy.run_path(str(package / "core/mpc/secagg.py"))
bits = 10


def average(weight, clients, prime):
    uploads = [{"weights": np.array([weight])} for _ in range(clients)]
    finite = [field["transform_tensor_to_finite"](upload, prime, bits) for upload in uploads]
    total = field["aggregate_models_in_finite"](finite, prime)["weights"]
    found = float(field["my_q_inv"](total, bits, prime)[0]) / clients
    print(f"prime {prime}: the average of {clients} clients with the weight {weight} is {found:.4f}")
    return found


large = 2**15 - 19
assert abs(average(0.4, 2, 1997) - 0.4) < 1e-3
assert abs(average(0.5, 30, large) - 0.5) < 1e-3
assert average(0.6, 2, 1997) < -0.3 and average(0.5, 50, large) < -0.1, "the behaviour has changed"
PY
