#!/usr/bin/env bash
# Expected: labels 0, 1, 2 that zarr wrote as integers are integers 0, 1, 2 when xarray reads them, in format 2 as in format 3.
# Seen:     of format 2 xarray takes the fill value, which zarr sets to 0, as the mark of missing values: labels are floats, and class 0 is
#           nan, with use_zarr_fill_value_as_mask=False, too. Of format 3 they are right.
# Versions: zarr 3.1.6, xarray 2026.9.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    dropping missing records drops a class, black pixels of 0 leave the mean and the covariance; open with
#           mask_and_scale=False, or write format 3.
# Source:   https://docs.xarray.dev/en/stable/internals/zarr-encoding-spec.html; xarray/backends/zarr.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet zarr==3.1.6 xarray==2026.9.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import xarray
import zarr

labels = np.array([0, 1, 2, 0, 1, 2])
read = {}
for version, dimensions in ((2, {"attributes": {"_ARRAY_DIMENSIONS": ["record"]}}), (3, {"dimension_names": ["record"]})):
    group = zarr.open_group(f"labels-{version}.zarr", mode="w", zarr_format=version)
    group.create_array("label", shape=labels.shape, dtype=labels.dtype, **dimensions)[:] = labels
    read[version] = xarray.open_zarr(f"labels-{version}.zarr", consolidated=False)["label"].values
    print(f"format {version}: {read[version].tolist()} ({read[version].dtype})")
store = "labels-2.zarr"
unheard = xarray.open_zarr(store, consolidated=False, use_zarr_fill_value_as_mask=False)["label"].values
unmasked = xarray.open_zarr(store, consolidated=False, mask_and_scale=False)["label"].values
assert np.array_equal(read[3], labels) and read[3].dtype == labels.dtype
assert np.array_equal(unmasked, labels) and unmasked.dtype == labels.dtype
for values in (read[2], unheard):
    assert np.array_equal(np.isnan(values), labels == 0), "the behaviour has changed"
PY
