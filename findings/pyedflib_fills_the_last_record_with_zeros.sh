#!/usr/bin/env bash
# Expected: a signal of 10.5 seconds comes back from an EDF file as long as it was, or is refused.
# Seen:     `write_edf` fills its last data record with zero volts: 1,050 samples become 1,100, and nothing is said. A
#           window of a quarter of a second becomes 100 samples, 75 of them zeros.
# Versions: pyedflib 0.1.42, numpy 2.4.6
# Date:     2026-11-29
# Means:    windows that are cut from a file have zeros that nobody measured: they shrink the covariance to which noise is calibrated.
# Source:   https://www.edfplus.info/specs/edf.html (data records of a whole duration)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet pyedflib==0.1.42 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from pyedflib import highlevel

signal = np.random.default_rng(0).normal(10, 1, (1, 1050))
header = highlevel.make_signal_headers(["EEG"], physical_min=-20, physical_max=20, sample_frequency=100)
found = {}
for length in (1050, 25, 100):
    highlevel.write_edf("signal.edf", signal[:, :length], header)
    back = highlevel.read_edf("signal.edf")[0][0]
    assert np.abs(back[:length] - signal[0, :length]).max() < 1e-3
    found[length] = (back.size, int((np.abs(back) < 1e-3).sum()))
print("samples written: samples read, of them zeros:", found)
assert found[100] == (100, 0)
assert found[1050] == (1100, 50) and found[25] == (100, 75), "the behaviour has changed"
PY
