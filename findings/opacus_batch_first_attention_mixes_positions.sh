#!/usr/bin/env bash
# Expected: DPMultiheadAttention with the weights of nn.MultiheadAttention computes the same, whatever batch_first is.
# Seen:     with batch_first=True the attention weights are equal and the output is not: the heads' results are laid out as if they
#           were positions, within a record. With the batch second both layers agree.
# Versions: torch 2.13.0, opacus 1.6.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    DP holds, as records stay apart; a pretrained transformer that is converted for DP begins as another function, and its
#           accuracy is blamed on the noise.
# Source:   opacus/layers/dp_multihead_attention.py, forward: attn_output.contiguous().view(bsz, tgt_len, embed_dim)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 opacus==1.6.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from opacus.layers import DPMultiheadAttention

torch.manual_seed(0)
off = {}
for batch_first in (False, True):
    plain = torch.nn.MultiheadAttention(8, 2, batch_first=batch_first)
    private = DPMultiheadAttention(8, 2, batch_first=batch_first)
    private.load_state_dict(plain.state_dict())
    inputs = torch.randn(3, 7, 8)
    expected, weights = plain(inputs, inputs, inputs)
    found, found_weights = private(inputs, inputs, inputs)
    assert torch.allclose(weights, found_weights)
    off[batch_first] = float((expected - found).abs().max())
    print(f"batch_first={batch_first}: attention weights equal, outputs off by {off[batch_first]:.3g} of {float(expected.abs().max()):.3g}")
    changed = inputs.clone()
    changed[1] += 1
    if batch_first:
        others = (private(changed, changed, changed)[0] - found).abs().amax((1, 2))
        assert others[0] == others[2] == 0 < others[1], "records are mixed"
assert off[False] < 1e-6
assert off[True] > 0.1, "the behaviour has changed: outputs agree"
PY
