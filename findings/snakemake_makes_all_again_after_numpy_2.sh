#!/usr/bin/env bash
# Expected: a parameter that is np.float64(0.5), as a table of settings gives it, is the same value before and after an update of NumPy.
# Seen:     Snakemake records parameters by their repr. NumPy 1.26 writes 0.5 and 2.4 writes np.float64(0.5): all jobs run again with
#           *Params have changed*, of equal commands.
# Versions: snakemake 9.27.1, numpy 1.26.4, numpy 2.4.6
# Date:     2026-11-29
# Means:    make parameters plain (float(value)), or thousands of finished jobs are made again after an update.
# Source:   snakemake/persistence.py, _params
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 1.26.4 2.4.6; do
    python3 -m venv "$folder/$version"
done
"$folder/1.26.4/bin/python" -m pip install --quiet snakemake==9.27.1 numpy==1.26.4
"$folder/2.4.6/bin/python" -m pip install --quiet snakemake==9.27.1 numpy==2.4.6
mkdir "$folder/project"
cd "$folder/project"
export XDG_CACHE_HOME=$folder/cache
cat > Snakefile <<'SMK'
import numpy as np

rule all:
    input: "plain.txt", "numpy.txt"

rule plain:
    output: "plain.txt"
    params: rate=float(np.float64(0.5))
    shell: "echo {params.rate} > {output}"

rule numpy:
    output: "numpy.txt"
    params: rate=np.float64(0.5)
    shell: "echo {params.rate} > {output}"
SMK
"$folder/1.26.4/bin/python" -m snakemake -j 1 --quiet all
cat plain.txt numpy.txt
"$folder/1.26.4/bin/python" -m snakemake -n > before.txt 2>&1
grep -q "Nothing to be done" before.txt
"$folder/2.4.6/bin/python" -m snakemake -n > after.txt 2>&1
grep -iE "^rule|reason|changed" after.txt
grep -q "^rule numpy:" after.txt || { echo "nothing runs again: the behaviour has changed"; exit 1; }
if grep -q "^rule plain:" after.txt; then echo "plain numbers run again, too"; exit 1; fi
