#!/usr/bin/env bash
# Expected: an update that FedML's QuantizationCompressor quantizes with 8 bits has 255 levels in its range and an error of about 1 %.
# Seen:     the levels are shares of the layer's norm and are rounded down: of a million normal weights each is about a thousandth of the
#           norm, below the first of 255 levels, and 99.99 % arrive as 0. Of 100 weights 2 % do.
# Versions: fedml 0.9.6, torch 2.13.0, numpy 2.4.6, scipy 1.17.1
# Date:     2026-11-30
# Means:    large layers are not trained, and an attack on such uploads sees zeros: that is no defense by quantization. Quantize by the
#           largest value, or in buckets, and round at random as QSGD does.
# Source:   fedml/utils/compression.py, QuantizationCompressor.get_naive_quantize; Alistarh et al. 2017 (QSGD)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 numpy==2.4.6 scipy==1.17.1
"$folder/venv/bin/python" -m pip install --quiet --no-deps fedml==0.9.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import runpy
from importlib.util import find_spec
from pathlib import Path

import torch

# The module by itself: the package starts the agent of a platform when it is imported.
package = Path(find_spec("fedml").submodule_search_locations[0])
compressor = runpy.run_path(str(package / "utils/compression.py"))["QuantizationCompressor"]()
zeros, errors = {}, {}
for size in (100, 10_000, 1_000_000):
    update = torch.randn(size, generator=torch.Generator().manual_seed(0))
    received = compressor.compress(update, quantize_level=8)
    zeros[size] = float((received == 0).float().mean())
    errors[size] = float((received - update).norm() / update.norm())
    print(f"{size} weights: {zeros[size]:.2%} arrive as 0, relative error {errors[size]:.3f}")
assert zeros[100] < 0.05 and errors[100] < 0.05
assert zeros[1_000_000] > 0.999, "the behaviour has changed"
PY
