#!/usr/bin/env bash
# Expected: an array that is read back equals the one that was saved, or saving it is refused (as safetensors.torch does).
# Seen:     safetensors.numpy writes the bytes in the order of memory under the shape of the view: a transposed or
#           Fortran-ordered array comes back scrambled, every second value as the first half, and nothing is raised.
# Versions: safetensors 0.8.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    make arrays contiguous (np.ascontiguousarray) before a weight or an upload is saved; leakbound does.
# Source:   https://huggingface.co/docs/safetensors/api/numpy says nothing on the order of memory.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet safetensors==0.8.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from safetensors.numpy import load, save

table = np.arange(6.0).reshape(2, 3)
views = {"transposed": table.T, "fortran": np.asfortranarray(table), "every_second": np.arange(6.0)[::2]}
back = load(save(views))
for name, view in views.items():
    print(f"{name}: saved {view.tolist()}, read {back[name].tolist()}")
    assert back[name].shape == view.shape
    assert not np.array_equal(back[name], view), f"{name} is read as it was saved: the behaviour has changed"
assert back["every_second"].tolist() == [0.0, 1.0, 2.0]
assert np.array_equal(load(save({"copy": np.ascontiguousarray(table.T)}))["copy"], table.T)
PY
