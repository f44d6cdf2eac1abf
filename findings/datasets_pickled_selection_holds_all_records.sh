#!/usr/bin/env bash
# Expected: ten records of a dataset, selected or filtered, are ten records when they are pickled, e.g. for a worker or a client.
# Seen:     `select`, `filter` and `train_test_split` are indices into the whole table, and a pickle holds the table: the names of all
#           1,000 patients. `save_to_disk` writes ten, and so does `flatten_indices` before the pickle.
# Versions: datasets 5.2.0, numpy 2.4.6, pandas 3.1.1
# Date:     2026-11-29
# Means:    a selection that a federated simulation, a queue or joblib passes on has every record of the site in it.
# Source:   https://huggingface.co/docs/datasets/process (indices mapping), datasets/arrow_dataset.py, __getstate__
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/hub HF_DATASETS_DISABLE_PROGRESS_BARS=1 HF_HUB_OFFLINE=1
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" - <<'PY'
import pickle
from pathlib import Path

from datasets import Dataset, disable_progress_bars

disable_progress_bars()
names = [f"patient{number:05d}" for number in range(1000)]
data = Dataset.from_dict({"name": names, "value": list(range(1000))})


def held(content):
    return sum(name.encode() in content for name in names)


ten = data.select([*range(0, 100, 10)])
found = {
    "select": held(pickle.dumps(ten)),
    "filter": held(pickle.dumps(data.filter(lambda record: record["value"] < 10))),
    "test half": held(pickle.dumps(data.train_test_split(test_size=10, seed=0)["test"])),
    "flattened": held(pickle.dumps(ten.flatten_indices())),
}
ten.save_to_disk("ten")
found["saved"] = held(b"".join(file.read_bytes() for file in Path("ten").iterdir()))
print("names in a pickle of ten records:", found)
assert found["flattened"] == found["saved"] == 10
assert found["select"] == found["filter"] == found["test half"] == 1000, "the behaviour has changed"
PY
