#!/usr/bin/env bash
# Expected: class_encode_column of a column that holds the classes 0 to 11 as whole numbers keeps the numbers.
# Seen:     numbers become texts, which are sorted as such: 2 becomes 4, 10 becomes 2. With up to ten classes nothing changes.
# Versions: datasets 5.2.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    of more than ten classes (11 organs, 14 findings), a network trained before has other outputs; keep the column as it is.
# Source:   datasets/arrow_dataset.py, class_encode_column
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/cache HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
from datasets import Dataset


def encoded(classes):
    return Dataset.from_dict({"label": list(range(classes))}).class_encode_column("label")["label"][:]


print(f"0 to 9: {encoded(10)}; 0 to 11: {encoded(12)}")
assert encoded(10) == list(range(10))
assert encoded(12) == [0, 1, 4, 5, 6, 7, 8, 9, 10, 11, 2, 3], "the behaviour has changed"
PY
