#!/usr/bin/env bash
# Expected: the query matrix C of BandedMatrixFactorizationMechanism has columns of norm 1: noise is scaled to a sensitivity of 1 for each
#           participation, and the accountant counts the participations.
# Seen:     the optimizer fixes the diagonal of X = CᵀC, the columns' norms, and C is then the Cholesky factor L of X = LLᵀ, whose rows have
#           norm 1. Its first column has a squared norm of 3.0 for 16 rounds and 6.4 for 100: who takes part in that round has a sensitivity
#           of 1.7, and 3.2 where five participations are counted as 2.2.
# Versions: pfl 0.6.0, torch 2.13.0, numpy 2.4.6, dp-accounting 0.5.1
# Date:     2026-11-30
# Means:    ε of clients that take part in the first round is larger than stated: of one participation in 16 rounds at a multiplier of 1,
#           8.4 where 4.4 is stated. Compare the columns of query_matrix with 1 and multiply the noise by the ratio.
# Source:   pfl/privacy/ftrl_mechanism.py, BandedMatrixFactorizationMechanism; arXiv 2306.08153, section 4
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pfl==0.6.0 torch==2.13.0 numpy==2.4.6 dp-accounting==0.5.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from pfl.internal.ops import pytorch_ops
from pfl.internal.ops.selector import set_framework_module
from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism
from pfl.privacy.privacy_accountant import PLDPrivacyAccountant

set_framework_module(pytorch_ops)


def accountant(participations):
    return PLDPrivacyAccountant(participations, sampling_probability=1.0, mechanism="gaussian", delta=1e-5, noise_parameter=1.0)


def epsilon(noise_multiplier):
    return PLDAccountant().compose(GaussianDpEvent(noise_multiplier)).get_epsilon(1e-5)


found = {}
for rounds, separation in ((16, 16), (100, 20)):
    mechanism = BandedMatrixFactorizationMechanism(1.0, rounds, separation, accountant)
    matrix = mechanism.query_matrix
    columns, rows = np.square(matrix).sum(0), np.square(matrix).sum(1)
    # Columns of rounds that are `separation` apart do not overlap: a client's squared sensitivity is the sum of their squared norms.
    client = max(columns[start::separation].sum() for start in range(separation))
    counted = len(columns[::separation])
    assert abs(rows - 1).max() < 1e-5
    stated, holds = epsilon(1 / counted**0.5), epsilon(1 / client**0.5)
    found[rounds] = (columns[0], client / counted)
    print(f"{rounds} rounds: first column {columns[0]:.2f}, squared sensitivity {client:.2f}, counted {counted}")
    print(f"epsilon at a multiplier of 1: stated {stated:.2f}, of the first client {holds:.2f}")
assert found[16][0] > 2.5 and found[16][1] > 2.5, "the behaviour has changed"
assert found[100][0] > 5 and found[100][1] > 1.5
PY
