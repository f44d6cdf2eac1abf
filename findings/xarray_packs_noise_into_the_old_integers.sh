#!/usr/bin/env bash
# Expected: a variable that was read from 16-bit integers with a scale, as climate and imaging archives pack it, and to which noise is added
#           in place, is written with room for the noise, or refused where values leave the range.
# Seen:     the old scale stays in the variable's encoding: values beyond the packed range wrap around to its other end. Of 1,000 values
#           some 2 % are off, by the whole range of 35. Nothing is said. Arithmetic that makes a new variable (a + noise) drops the encoding.
# Versions: xarray 2026.9.0, netcdf4 1.7.5.1.post1, numpy 2.4.6
# Date:     2026-11-30
# Means:    protected copies hold records far from what the noise made, and their largest values become the smallest: clear .encoding first.
# Source:   https://docs.xarray.dev/en/stable/user-guide/io.html (reading encoded data); xarray/coding/variables.py, CFScaleOffsetCoder
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet xarray==2026.9.0 netcdf4==1.7.5.1.post1 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W error::RuntimeWarning - <<'PY'
import numpy as np
import xarray

generator = np.random.default_rng(0)
values = generator.normal(20.0, 5.0, 1000)
low, high = values.min(), values.max()
packing = {"dtype": "int16", "scale_factor": (high - low) / 65534, "add_offset": (high + low) / 2, "_FillValue": -32768}
xarray.Dataset({"records": ("record", values)}).to_netcdf("packed.nc", encoding={"records": packing})
data = xarray.load_dataset("packed.nc")
noisy = data["records"].values + generator.normal(0.0, 5.0, 1000)
data["records"][:] = noisy
data.to_netcdf("in_place.nc")
data.assign(records=("record", noisy)).to_netcdf("new.nc")
errors = {name: np.abs(xarray.load_dataset(f"{name}.nc")["records"].values - noisy) for name in ("in_place", "new")}
wrapped = errors["in_place"] > 1.0
print(f"range {high - low:.1f}; in place: {wrapped.sum()} of 1,000 off, by {errors['in_place'].max():.1f}; new: {errors['new'].max():.2g}")
assert errors["new"].max() == 0.0
assert wrapped.sum() > 5 and np.allclose(errors["in_place"][wrapped], high - low, rtol=0.01), "the behaviour has changed"
assert np.array_equal(wrapped, (noisy < low - packing["scale_factor"]) | (noisy > high + packing["scale_factor"]))
PY
