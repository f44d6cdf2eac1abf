#!/usr/bin/env bash
# Expected: --set-resources and --set-threads (or those lines of a profile) with the name of no rule are refused.
# Seen:     they are taken without a word, and the rule keeps what it had.
# Versions: snakemake 9.27.1
# Date:     2026-11-29
# Means:    a wrong name of a rule in a profile asks the queue for the old memory for thousands of jobs; look at a dry run with -p first.
# Source:   https://snakemake.readthedocs.io/en/stable/snakefiles/rules.html#resources
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet snakemake==9.27.1
cd "$folder"
cat > Snakefile <<'SMK'
rule train:
    output: "trained.txt"
    resources: mem_mb=100
    shell: "echo {threads} {resources.mem_mb} > {output}"
SMK
run() {
    rm -f trained.txt
    XDG_CACHE_HOME=$folder venv/bin/snakemake --cores 1 "$@" > log.txt 2>&1 || { cat log.txt; return 1; }
}
run --set-resources train:mem_mb=999
right=$(cat trained.txt)
run --set-resources training:mem_mb=999 --set-threads training=1 || { echo "unknown rules are refused: the behaviour has changed"; exit 1; }
wrong=$(cat trained.txt)
echo "threads and memory with train:mem_mb=999: $right; with training:mem_mb=999: $wrong"
if grep -v "Command:" log.txt | grep -qi training; then echo "the unknown rule is named: the behaviour has changed"; exit 1; fi
test "$right" = "1 999"
test "$wrong" = "1 100"
