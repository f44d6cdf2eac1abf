#!/usr/bin/env bash
# Expected: microbatch_size of clipped_grad changes memory and time, and the sum of clipped gradients by roundings only.
# Seen:     with weights of bfloat16 each microbatch is added in bfloat16: 1,000 gradients of 1 sum to 256 in microbatches of one,
#           to 1,000 without. A clipped gradient has a norm of 1.0025 there. dtype=float32 mends both.
# Versions: jax-privacy 2.0.0, jax 0.10.2, jaxlib 0.10.2, numpy 2.4.6
# Date:     2026-11-29
# Means:    pass dtype=jnp.float32: otherwise the last records of a batch are lost, and the sensitivity is above the told one.
# Source:   jax_privacy/clipping.py, clipped_grad(dtype=…, microbatch_size=…)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet jax-privacy==2.0.0 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy import clipped_grad


def loss(weights, record):
    return jnp.sum(weights * record)


def total(**options):
    weights, records = jnp.zeros(1, jnp.bfloat16), jnp.ones((1000, 1), jnp.bfloat16)
    return float(clipped_grad(loss, l2_clip_norm=1.0, **options)(weights, records)[0])


def norm(**options):
    record = jax.random.normal(jax.random.key(0), (1, 1000)).astype(jnp.bfloat16)
    gradient = clipped_grad(loss, l2_clip_norm=1.0, **options)(jnp.zeros(1000, jnp.bfloat16), record)
    return float(np.linalg.norm(np.asarray(gradient, dtype=float)))


whole, pieces, mended = total(), total(microbatch_size=1), total(microbatch_size=1, dtype=jnp.float32)
print(f"sum of 1,000 gradients of 1: {whole}, in microbatches of one {pieces}, with dtype=float32 {mended}")
print(f"norm of a gradient clipped to 1: {norm():.4f}, with dtype=float32 {norm(dtype=jnp.float32):.7f}")
assert whole == mended == 1000.0
assert pieces == 256.0, "the behaviour has changed"
assert norm() > 1.001 > norm(dtype=jnp.float32)
PY
