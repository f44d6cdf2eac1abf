#!/usr/bin/env bash
# Expected: casting a column of ClassLabel from (benign, malignant) to (malignant, benign) keeps the class of each
#           record, by its name, or is refused, as concatenating the two is.
# Seen:     the integers stay, and every record has the other class; nothing is said. From texts the cast goes by name.
# Versions: datasets 5.2.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    clients whose label lists are in another order train on swapped classes after a cast; compare names, not
#           numbers, before records of two sites meet. align_labels_with_mapping goes by name.
# Source:   https://huggingface.co/docs/datasets/process#cast
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/hub
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import datasets

datasets.disable_progress_bars()
first, second = (datasets.ClassLabel(names=names) for names in (["benign", "malignant"], ["malignant", "benign"]))
texts = datasets.Dataset.from_dict({"label": ["benign", "malignant", "malignant"]})
labelled = texts.cast_column("label", first)
recast = labelled.cast_column("label", second)
aligned = labelled.align_labels_with_mapping({"malignant": 0, "benign": 1}, "label")


def names(table):
    return table.features["label"].int2str(table["label"][:])


print(f"labelled {names(labelled)}\nrecast   {names(recast)}\naligned  {names(aligned)}")
assert names(labelled) == names(texts.cast_column("label", second)) == names(aligned) == texts["label"][:]
assert names(recast) == ["malignant", "benign", "benign"], "the behaviour has changed"
try:
    datasets.concatenate_datasets([labelled, texts.cast_column("label", second)])
except ValueError as error:
    print(f"concatenate_datasets: {str(error)[:60]}...")
else:
    raise SystemExit("tables with other orders of classes are concatenated: the behaviour has changed")
PY
