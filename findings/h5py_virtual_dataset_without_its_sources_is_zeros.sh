#!/usr/bin/env bash
# Expected: a virtual dataset in HDF5, which joins files of several sites, cannot be read if one of these files is missing.
# Seen:     the records of the missing file are read as zeros; shape and type stay, nothing is raised.
# Versions: h5py 3.16.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    copy the sources with the file that joins them, or copy its values; records of a missing site are zeros and count as records.
# Source:   https://docs.h5py.org/en/stable/vds.html
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet h5py==3.16.0 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PY'
from pathlib import Path

import h5py
import numpy as np

layout = h5py.VirtualLayout((4, 3), dtype="f8")
for site in range(2):
    with h5py.File(f"site-{site}.h5", "w") as file:
        file["records"] = np.full((2, 3), site + 1.0)
    layout[2 * site : 2 * site + 2] = h5py.VirtualSource(f"site-{site}.h5", "records", shape=(2, 3))
with h5py.File("all.h5", "w") as file:
    file.create_virtual_dataset("records", layout)


def sums():
    with h5py.File("all.h5") as file:
        return file["records"][:].sum(1).tolist()


before = sums()
Path("site-1.h5").unlink()
after = sums()
print(f"sum of each record: {before}; without the file of the second site: {after}")
assert before == [3, 3, 6, 6]
assert after == [3, 3, 0, 0], "the behaviour has changed"
PY
