#!/usr/bin/env bash
# Expected: the per-sample gradients of GradSampleModule are the gradients of the network, or the layer is refused.
# Seen:     of Conv2d with padding_mode "circular" or "reflect" they are those of a layer that pads with zeros; ModuleValidator has
#           no objection.
# Versions: torch 2.13.0, opacus 1.6.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    DP holds, the network does not train as it should; compare grad_sample with torch.func once, or pad by a layer of its own.
# Source:   opacus/grad_sample/conv.py, compute_conv_grad_sample
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from opacus import GradSampleModule
from opacus.validators import ModuleValidator


def error(mode):
    """Largest error of a per-sample gradient, relative to the largest gradient."""
    torch.manual_seed(0)
    layer, images = torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode=mode), torch.randn(3, 1, 6, 6)
    exact = [torch.autograd.grad(layer(image[None]).square().sum(), layer.weight)[0] for image in images]
    exact = torch.stack(exact)
    assert not ModuleValidator.validate(layer)
    GradSampleModule(layer, loss_reduction="sum")(images).square().sum().backward()
    return float((layer.weight.grad_sample - exact).abs().max() / exact.abs().max())


errors = {mode: error(mode) for mode in ("zeros", "circular", "reflect")}
print("relative errors of per-sample gradients:", errors)
assert errors["zeros"] < 1e-5
assert min(errors["circular"], errors["reflect"]) > 0.05, "the behaviour has changed"
PY
