#!/usr/bin/env bash
# Expected: a mask of whole labels 0 to 3 under a header of uint8 is stored as 0 to 3 and read as 0 to 3; values with
#           fractions under such a header are refused, or stored as floats.
# Seen:     floats are stretched over the whole range of the type: the file holds 0, 85, 170, 255 and a scale, and the
#           labels are read as 1.00000002, 2.00000004, 3.00000006, so that mask == 1 is empty. An image of standard
#           deviation 100 is off by more than 1.
# Versions: nibabel 5.4.2, numpy 2.4.6
# Date:     2026-11-29
# Means:    an image or mask that went through floats under the header of another file is another one after saving; set
#           the header's data type, or round labels, before records are read from it.
# Source:   https://nipy.org/nibabel/nifti_images.html (data scaling)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nibabel==5.4.2 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import nibabel
import numpy as np

header = nibabel.Nifti1Header()
header.set_data_dtype(np.uint8)
labels = np.repeat(np.arange(4.0), 16).reshape(4, 4, 4)
nibabel.save(nibabel.Nifti1Image(labels, np.eye(4), header), "mask.nii")
stored = nibabel.load("mask.nii")
raw, read = np.unique(stored.dataobj.get_unscaled()).tolist(), np.unique(stored.get_fdata())
print(f"labels [0, 1, 2, 3]: in the file {raw}, read {[f'{value:.10g}' for value in read]}")
picture = np.random.default_rng(0).normal(0.0, 100.0, (16, 16, 16))
nibabel.save(nibabel.Nifti1Image(picture, np.eye(4), header), "picture.nii")
error = np.abs(nibabel.load("picture.nii").get_fdata() - picture).max()
print(f"picture of standard deviation 100: largest error {error:.2f}")
assert raw == [0, 85, 170, 255], "the behaviour has changed: labels are stored otherwise"
assert not (stored.get_fdata() == 1.0).any()
assert np.allclose(read, [0, 1, 2, 3], atol=1e-6)
assert error > 1.0
PY
