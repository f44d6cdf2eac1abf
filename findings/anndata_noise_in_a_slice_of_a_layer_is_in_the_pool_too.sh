#!/usr/bin/env bash
# Expected: noise that is added in place to a layer of a selection is in the selection alone: the warning says that it becomes data of its
#           own. So it is for records chosen by a mask, and for layers that are assigned.
# Seen:     for a slice (pool[:3]) the pool's layer has the noise as well, though the selection is said to be a copy by then, and is one:
#           whoever adds more noise to a second slice of the same records adds it to the first noise.
# Versions: anndata 0.12.19, numpy 2.4.6, pandas 2.3.3
# Date:     2026-12-01
# Means:    records of the pool are changed by the noise of a client, and those of two clients share noise, which no accounting of independent
#           noise covers: .copy() a selection before noise is added.
# Source:   https://anndata.readthedocs.io/en/stable/tutorials/notebooks/getting-started.html (views and copies); anndata/_core/aligned_mapping.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet anndata==0.12.19 numpy==2.4.6 pandas==2.3.3
"$folder/venv/bin/python" - <<'PY'
import warnings

import anndata
import numpy as np

values = np.random.default_rng(0).normal(size=(6, 4))
noise = np.random.default_rng(1).normal(size=(3, 4))


def pool_after(chosen, in_place):
    pool = anndata.AnnData(np.zeros_like(values), layers={"counts": values.copy()})
    selection = pool[chosen]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if in_place:
            selection.layers["counts"] += noise
        else:
            selection.layers["counts"] = selection.layers["counts"] + noise
    assert any("initializing view as actual" in str(warning.message) for warning in caught)
    assert not selection.is_view, "the selection is data of its own"
    assert np.allclose(selection.layers["counts"], values[:3] + noise), "and has the noise once"
    return pool.layers["counts"]


mask = np.arange(6) < 3
for name, chosen in (("slice", slice(0, 3)), ("mask", mask)):
    for in_place in (True, False):
        changed = np.abs(pool_after(chosen, in_place) - values).max()
        print(f"{name}, {'in place' if in_place else 'assigned'}: the pool is changed by at most {changed:.2f}")
        assert (changed > 1.0) == (name == "slice" and in_place), "the behaviour has changed"
PY
