#!/usr/bin/env bash
# Expected: a rule that asks for 1,500 MB never runs, or is refused, where --resources mem_mb=1000 is all there is.
# Seen:     it runs and is told that it has 1,000: what a rule asks for is cut to the pool, as threads are to the cores.
# Versions: snakemake 9.27.1
# Date:     2026-11-29
# Means:    a limit that is meant to space out thousands of jobs lowers what each of them asks for; a job killed for memory is why.
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
    resources: mem="1.5GB"
    shell: "echo {resources.mem_mb} > {output}"
SMK
run() {
    rm -f trained.txt
    XDG_CACHE_HOME=$folder venv/bin/snakemake --cores 1 "$@" > log.txt 2>&1 || { cat log.txt; return 1; }
}
run
free=$(cat trained.txt)
run --resources mem_mb=1000 || { echo "the job does not run: the behaviour has changed"; exit 1; }
pool=$(cat trained.txt)
echo "memory of a rule that asks for 1.5GB: $free; with --resources mem_mb=1000: $pool"
if grep -qi "warn" log.txt; then grep -i "warn" log.txt; fi
test "$free" = 1500
test "$pool" = 1000
