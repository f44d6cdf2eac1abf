#!/usr/bin/env bash
# Expected: the instance of a Paramspace has the values of its table, whatever type the column has: a level of noise .5 is .5.
# Seen:     a categorical column of numbers comes back as nan for each level, and a column of objects as text; both jobs run and end well.
#           A column of floats is right.
# Versions: snakemake 9.27.1, pandas 3.1.1, numpy 2.4.6
# Date:     2026-11-30
# Means:    a table of levels that was made categorical, to sort or to draw it, runs all its jobs with nan: give Paramspace plain floats.
# Source:   snakemake/utils.py, Paramspace.instance; https://snakemake.readthedocs.io/en/stable/snakefiles/rules.html#parameter-space-exploration
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet snakemake==9.27.1 pandas==3.1.1 numpy==2.4.6
cd "$folder"
cat > Snakefile <<'SMK'
import pandas as pd
from snakemake.utils import Paramspace

kinds = {"floats": float, "categories": "category", "objects": object}
table = pd.DataFrame({"level": [0.5, 1.0]})
spaces = {kind: Paramspace(table.astype(dtype), filename_params="*") for kind, dtype in kinds.items()}

rule all:
    input: expand("{kind}/{level}.txt", kind=kinds, level=spaces["floats"].instance_patterns)

for kind, space in spaces.items():
    rule:
        name: kind
        output: kind + f"/{space.wildcard_pattern}.txt"
        params: chosen=space.instance
        run:
            level = params.chosen["level"]
            with open(output[0], "w") as file:
                file.write(f"{type(level).__name__} {level}\n")
SMK
XDG_CACHE_HOME=$folder venv/bin/snakemake --cores 1 > log.txt 2>&1 || { cat log.txt; exit 1; }
for kind in floats categories objects; do
    echo "$kind: level 0.5 is $(cat "$kind/level~0.5.txt"), 1.0 is $(cat "$kind/level~1.0.txt")"
done
test "$(cat floats/*.txt)" = $'float64 0.5\nfloat64 1.0'
test "$(cat categories/*.txt)" = $'float nan\nfloat nan' || { echo "the behaviour has changed"; exit 1; }
test "$(cat objects/*.txt)" = $'str 0.5\nstr 1.0' || { echo "the behaviour has changed"; exit 1; }
