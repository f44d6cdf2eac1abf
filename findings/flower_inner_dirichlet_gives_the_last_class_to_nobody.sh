#!/usr/bin/env bash
# Expected: InnerDirichletPartitioner of Flower Datasets finds the classes in the column that it is told, as DirichletPartitioner does: grades 1
#           to 5 are as good as 0 to 4, and so are names.
# Seen:     it counts five classes and looks for 0 to 4. With partitions that hold three quarters of 1,000 records, no client has a record of
#           grade 5; grade 0, which nobody has, takes a share of the draws. The warning is that of sizes that do not sum up.
# Versions: flwr-datasets 0.6.1, datasets 4.8.5, numpy 2.4.6
# Date:     2026-11-30
# Means:    of graded labels (ISUP, BI-RADS, letters of EMNIST from 1) the highest grade is in no client's training, upload or noise, and in the
#           test set: count classes over all partitions, or number them from 0 first.
# Source:   flwr_datasets/partitioner/inner_dirichlet_partitioner.py, idx_list = [np.where(targets == i)[0] for i in range(...)]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flwr-datasets==0.6.1 datasets==4.8.5 numpy==2.4.6
HF_HOME="$folder/cache" "$folder/venv/bin/python" -W ignore - <<'PY'
import warnings

import numpy as np
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner, InnerDirichletPartitioner

grades = np.tile(np.arange(5), 200)


def records_of_each_class(labels, partitioner):
    partitioner.dataset = Dataset.from_dict({"record": list(range(1000)), "grade": labels.tolist()})
    parts = [partitioner.load_partition(number) for number in range(5)]
    records = np.concatenate([part["record"] for part in parts])
    assert len(set(records)) == len(records) == sum(map(len, parts))
    return {int(grade): int(np.sum(labels[records] == grade)) for grade in np.unique(labels)}


def inner(seed):
    return InnerDirichletPartitioner(partition_sizes=[150] * 5, partition_by="grade", alpha=1.0, seed=seed)


for seed in range(5):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = records_of_each_class(grades + 1, inner(seed))
    print(f"grades 1 to 5, seed {seed}: {found}, from 0: {list(records_of_each_class(grades, inner(seed)).values())}")
    assert all("does not sum to the whole" in str(warning.message) for warning in said if warning.category is UserWarning)
    assert found[5] == 0 and sum(found.values()) == 750, "the behaviour has changed"
    assert min(records_of_each_class(grades, inner(seed)).values()) > 0
outer = DirichletPartitioner(num_partitions=5, partition_by="grade", alpha=1.0)
found = records_of_each_class(grades + 1, outer)
print("DirichletPartitioner:", found)
assert set(found.values()) == {200}
PY
