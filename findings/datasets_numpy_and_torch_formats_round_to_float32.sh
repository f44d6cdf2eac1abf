#!/usr/bin/env bash
# Expected: with_format("numpy") and with_format("torch") give the columns in their own types, as pandas and Arrow do.
# Seen:     float64 columns arrive as float32, int16 and uint16 as int64; a whole number with one missing value is a
#           float32 column, in which 16777217 reads 16777216.
# Versions: datasets 5.2.0, numpy 2.4.6, torch 2.13.0
# Date:     2026-11-29
# Means:    time stamps, identifiers and sums of a table lose their last digits before any noise is added; ask for
#           with_format("arrow"), or name a dtype.
# Source:   https://huggingface.co/docs/datasets/use_with_numpy
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/hub
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
from datasets import Dataset

columns = {
    "dose": np.array([16777217.0, 0.1]),
    "counts": np.array([1, 2], dtype=np.int16),
    "identifier": [16777217, None],
}
table = Dataset.from_dict(columns)
print(f"stored as { {name: feature.dtype for name, feature in table.features.items()} }")
assert [feature.dtype for feature in table.features.values()] == ["float64", "int16", "int64"]
for form in ("numpy", "torch"):
    found = table.with_format(form)[:]
    types = {name: str(column.dtype).removeprefix("torch.") for name, column in found.items()}
    print(f"{form}: {types}, identifier 16777217 reads {int(found['identifier'][0])}, dose {float(found['dose'][0]):.1f}")
    assert types == {"dose": "float32", "counts": "int64", "identifier": "float32"}, "the behaviour has changed"
    assert int(found["identifier"][0]) == int(found["dose"][0]) == 16777216
assert table.with_format("pandas")[:]["dose"].iloc[0] == 16777217.0
PY
