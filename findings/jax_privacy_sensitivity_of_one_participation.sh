#!/usr/bin/env bash
# Expected: the squared sensitivity of a banded strategy for at most five participations, eight steps apart, is five times that of one:
#           columns of eight bands do not overlap.
# Seen:     minsep_sensitivity_squared(coefficients, min_sep=8, max_participations=5) is that of one. Without n there are as many steps as
#           bands, in which nobody takes part twice, and the five are cut to one without a word. With n=40 it is five times as large.
# Versions: jax-privacy 2.0.0, jax 0.10.2
# Date:     2026-11-29
# Means:    noise that is scaled by it is √5 times too small, and the ε of five epochs is told as that of one.
# Source:   jax_privacy/matrix_factorization/toeplitz.py, _reconcile, and sensitivity.py, minsep_true_max_participations
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet jax-privacy==2.0.0 jax==0.10.2
"$folder/venv/bin/python" -W ignore - <<'PY'
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from jax_privacy.matrix_factorization import toeplitz


def epsilon(noise_multiplier):
    accountant = PLDAccountant()
    accountant.compose(GaussianDpEvent(noise_multiplier))
    return accountant.get_epsilon(1e-5)


coefficients = toeplitz.optimal_max_error_strategy_coefs(8)
short = float(toeplitz.minsep_sensitivity_squared(coefficients, min_sep=8, max_participations=5))
whole = float(toeplitz.minsep_sensitivity_squared(coefficients, min_sep=8, max_participations=5, n=40))
one = float(coefficients @ coefficients)
print(f"squared norm of a column {one:.6f}; sensitivity without n {short:.6f}, with n=40 {whole:.6f}")
noise = 2.0 * short**0.5
print(f"noise with a multiplier of 2 by the first: epsilon = {epsilon(2.0):.2f} is told, {epsilon(noise / whole**0.5):.2f} holds")
assert abs(whole - 5 * one) < 1e-5
assert abs(short - one) < 1e-5, "the behaviour has changed: five participations are counted without n"
PY
