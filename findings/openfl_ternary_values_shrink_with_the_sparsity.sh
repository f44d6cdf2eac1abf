#!/usr/bin/env bash
# Expected: OpenFL's STCPipeline sends the largest tenth of an update's values as plus or minus their mean magnitude, as sparse ternary
#           compression does.
# Seen:     the mean is taken over all values, the zeros of the nine tenths with them: of normal values whose largest tenth has a mean
#           magnitude of 2.06, .206 arrives, a tenth, and at p_sparsity=.01 a hundredth.
# Versions: openfl 1.9, numpy 2.4.6, scikit-learn 1.9.1, cloudpickle 3.1.2, dynaconf 3.3.5, tqdm 4.70.1
# Date:     2026-11-30
# Means:    clients' updates arrive p_sparsity times as large as they should: training nearly stops, and what such uploads reveal is
#           compared at another size.
# Source:   openfl/pipelines/stc_pipeline.py, TernaryTransformer.forward; Sattler et al., arXiv 1903.02891, Algorithm 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet numpy==2.4.6 scikit-learn==1.9.1 cloudpickle==3.1.2 dynaconf==3.3.5 tqdm==4.70.1
"$folder/venv/bin/python" -m pip install --quiet --no-deps openfl==1.9
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from openfl.pipelines.stc_pipeline import STCPipeline

update = np.random.default_rng(0).normal(size=10_000).astype(np.float32)
found = {}
for sparsity in (0.1, 0.01):
    pipeline = STCPipeline(p_sparsity=sparsity)
    back = pipeline.backward(*pipeline.forward(update))
    kept = back != 0
    assert kept.sum() == sparsity * update.size
    assert np.array_equal(np.sign(back[kept]), np.sign(update[kept]))
    found[sparsity] = float(np.abs(back[kept]).mean() / np.abs(update[kept]).mean())
    print(f"p_sparsity {sparsity}: mean magnitude sent {np.abs(update[kept]).mean():.3f}, received {np.abs(back[kept]).mean():.3f}")
assert all(abs(share / sparsity - 1) < 1e-3 for sparsity, share in found.items()), "the behaviour has changed"
PY
