#!/usr/bin/env bash
# Expected: AdaQuant of NVFlare adapts to the tensor, so that the relative error of an update does not depend on its size.
# Seen:     the number of levels grows with the root of the tensor's range: an update whose values span 1 has 127, the same update
#           times .001 has 3, so that a late round of a training arrives with signs and little else.
# Versions: nvflare 2.9.0, torch 2.13.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    what an upload reveals and what it teaches shrink together as a training converges; scale differences of weights before
#           they are quantized, or compare attacks at equal ranges.
# Source:   nvflare/app_opt/pt/quantization/ada_quant.py, get_number_of_quantization_levels
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nvflare==2.9.0 torch==2.13.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from nvflare.app_opt.pt.quantization.ada_quant import AdaQuantizer

update = torch.rand(10_000, generator=torch.Generator().manual_seed(0)) - 0.5
levels, errors = {}, {}
for scale in (1.0, 0.1, 0.001):
    quantizer = AdaQuantizer(compression=False)
    codes, state = quantizer.quantize(update * scale)
    back = quantizer.dequantized(torch.as_tensor(codes), state)
    levels[scale] = state["quantization_level"]
    errors[scale] = float((back - update * scale).square().mean().sqrt() / (update * scale).std())
print("steps by scale:", levels, "relative errors:", {scale: round(error, 3) for scale, error in errors.items()})
assert errors[1.0] < 0.01
assert levels[1.0] == 127 and levels[0.001] == 3, "the behaviour has changed"
assert errors[0.001] > 0.3
PY
