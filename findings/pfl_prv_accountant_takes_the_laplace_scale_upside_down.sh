#!/usr/bin/env bash
# Expected: PRVPrivacyAccountant of pfl takes the scale of Laplace noise, as its documentation says and PLDPrivacyAccountant does: ten times
#           the noise has a tenth of ε, and sampling amplifies.
# Seen:     the scale is handed to prv-accountant as the distance μ of two Laplace distributions of scale 1: at a scale of 10 ε is 10.0
#           where .10 holds, and at .5 it is .5 where 2 holds. The sampling probability is left out.
# Versions: pfl 0.6.0, prv-accountant 0.2.0, dp-accounting 0.5.1, numpy 2.4.6
# Date:     2026-11-30
# Means:    below a scale of 1 the ε that is stated is too small, above it too large; take PLDPrivacyAccountant for Laplace noise.
# Source:   pfl/privacy/privacy_accountant.py, PRVPrivacyAccountant.get_composed_accountant; arXiv 2106.02848
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pfl==0.6.0 prv-accountant==0.2.0 dp-accounting==0.5.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant, PRVPrivacyAccountant


def epsilon(kind, scale, rate):
    return kind(1, sampling_probability=rate, mechanism="laplace", delta=1e-5, noise_parameter=scale).epsilon


for rate in (1.0, 0.1):
    found = {}
    for scale in (0.5, 1.0, 10.0):
        prv, pld = (epsilon(kind, scale, rate) for kind in (PRVPrivacyAccountant, PLDPrivacyAccountant))
        found[scale] = (prv, pld)
        print(f"rate {rate}, scale {scale}: PRV {prv:.3f}, PLD {pld:.3f}")
    assert found[10.0][1] < found[1.0][1] < found[0.5][1]
    assert found[0.5][0] < 0.51 and found[10.0][0] > 9.9, "the behaviour has changed"
PY
