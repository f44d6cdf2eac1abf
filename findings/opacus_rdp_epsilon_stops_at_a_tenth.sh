#!/usr/bin/env bash
# Expected: ε of the Gaussian mechanism goes to 0 as its noise grows, about as 1 / multiplier, in any accountant by Rényi orders.
# Seen:     Opacus' orders end at 63: at δ = 1e-5 its ε stops at .103, for a multiplier of 5,000 as for one of 500. dp-accounting,
#           with orders to 1,024, says .0055 at 500, its PLD .0044. Opacus warns that the best order is the largest, not by how much.
# Versions: torch 2.13.0, opacus 1.6.0, dp-accounting 0.6.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    a small ε stated by rdp is a bound, and may be 20 times the truth: state prv, or pass higher orders, below about .2.
# Source:   opacus/accountants/rdp.py, DEFAULT_ALPHAS
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 dp-accounting==0.6.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import warnings

import dp_accounting
from dp_accounting import pld, rdp
from opacus.accountants import RDPAccountant

warnings.simplefilter("ignore")
opacus, google, exact = {}, {}, {}
for multiplier in (5.0, 500.0, 5000.0):
    accountant = RDPAccountant()
    accountant.history = [(multiplier, 1.0, 1)]
    event = dp_accounting.GaussianDpEvent(multiplier)
    opacus[multiplier] = accountant.get_epsilon(delta=1e-5)
    google[multiplier] = rdp.RdpAccountant().compose(event).get_epsilon(1e-5)
    exact[multiplier] = pld.PLDAccountant().compose(event).get_epsilon(1e-5)
    row = f"opacus rdp {opacus[multiplier]:.5f}, dp-accounting rdp {google[multiplier]:.5f}, pld {exact[multiplier]:.5f}"
    print(f"multiplier {multiplier:g}: {row}")
assert abs(opacus[5.0] / google[5.0] - 1) < 1e-6
assert opacus[5000.0] > 0.1, "the behaviour has changed"
assert opacus[500.0] > 15 * google[500.0]
assert exact[500.0] < google[500.0] < 0.006
PY
