#!/usr/bin/env bash
# Expected: an array of which a chunk file is missing, as after a copy that broke off, cannot be read whole.
# Seen:     the missing chunk is read as the fill value, 0: whole records are zeros, and nothing is raised or said.
# Versions: zarr 3.1.6, numpy 2.4.6
# Date:     2026-11-29
#           Counting does not tell: chunks of zeros are not stored by default, so a whole store has fewer files than chunks, too.
# Means:    compare the digests of a copied store's files, or look for records of nothing but zeros, before they are trained on.
# Source:   https://zarr-specs.readthedocs.io/en/latest/v3/core/v3.0.html (fill value of chunks that are not stored)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet zarr==3.1.6 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PY'
from pathlib import Path

import numpy as np
import zarr

written = zarr.create_array("records.zarr", shape=(10, 4), chunks=(2, 4), dtype="f4")
written[:] = np.ones((10, 4))
chunks = sorted(path for path in Path("records.zarr/c").rglob("*") if path.is_file())
chunks[1].unlink()
read = zarr.open_array("records.zarr", mode="r")
print(f"{len(chunks)} chunks written, {len(chunks) - 1} there; sum of each record: {read[:].sum(1).tolist()}")
print(f"chunks that zarr says are initialized: {read.nchunks_initialized} of {read.nchunks}")
assert read[:].sum(1).tolist() == [4, 4, 0, 0, 4, 4, 4, 4, 4, 4], "the behaviour has changed"
assert read.nchunks_initialized == 4 < read.nchunks
sparse = zarr.create_array("sparse.zarr", shape=(10, 4), chunks=(2, 4), dtype="f4")
sparse[:] = np.repeat([1, 0, 1, 1, 1], 2)[:, None]
print(f"a whole store with two records of zeros: {sparse.nchunks_initialized} of {sparse.nchunks}")
assert sparse.nchunks_initialized == 4, "the behaviour has changed"
PY
