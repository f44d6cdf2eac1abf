#!/usr/bin/env bash
# Expected: Dataset.from_generator reads the file again that its generator opens, once the file has changed, as load_dataset("csv") does.
# Seen:     the records are kept under the digest of the generator's code: the old ones come back, also in another process, from the cache.
# Versions: datasets 5.2.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    a corrected or withdrawn record is still trained on, and noise is calibrated to the old table: pass the file's digest in
#           gen_kwargs, or a cache_dir of its own.
# Source:   https://huggingface.co/docs/datasets/create_dataset; datasets/packaged_modules/generator/generator.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/hub HF_HUB_OFFLINE=1 HF_DATASETS_DISABLE_PROGRESS_BARS=1
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet datasets==5.2.0 numpy==2.4.6
cd "$folder"
cat > read.py <<'PY'
from datasets import Dataset, load_dataset


def records(file="records.csv"):
    with open(file) as lines:
        next(lines)
        for line in lines:
            yield {"value": float(line)}


print(Dataset.from_generator(records)["value"][:], load_dataset("csv", data_files="records.csv", split="train")["value"][:])
PY
printf 'value\n1.5\n2.5\n' > records.csv
before=$(venv/bin/python read.py)
printf 'value\n2.5\n' > records.csv
after=$(venv/bin/python read.py)
echo "from_generator and load_dataset: $before; after the first record was withdrawn: $after"
test "$before" = "[1.5, 2.5] [1.5, 2.5]"
test "$after" = "[1.5, 2.5] [2.5]" || { echo "the behaviour has changed"; exit 1; }
