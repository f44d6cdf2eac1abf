#!/usr/bin/env bash
# Expected: UniformWithReplacementSampler with rate q takes each record with probability q.
# Seen:     it compares float32 uniforms, multiples of 2^-24, with q: the rate is q rounded up to the next multiple. At q = 1e-8 six
#           times as many records are drawn; at q = 1e-6, 1.3 % more.
# Versions: torch 2.13.0, opacus 1.6.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    with tens of millions of records and small batches, ε of the rate that you set is too small; account ceil(q 2^24) / 2^24.
# Source:   opacus/utils/uniform_sampler.py; https://docs.pytorch.org/docs/stable/generated/torch.rand.html
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import torch
from opacus.utils.uniform_sampler import UniformWithReplacementSampler

generator = torch.Generator().manual_seed(0)
uniforms = torch.rand(1_000_000, generator=generator)
assert torch.equal(uniforms * 2**24, (uniforms * 2**24).round())
records, batches = 10_000_000, 100
sampler = UniformWithReplacementSampler(num_samples=records, sample_rate=1e-8, generator=generator, steps=batches)
drawn = sum(map(len, sampler))
told, rounded = 1e-8 * records * batches, records * batches / 2**24
print(f"records drawn: {drawn}; {told:.0f} at the rate 1e-8, {rounded:.0f} at 2^-24")
assert drawn > 30, "the behaviour has changed"  # of a Poisson variable with mean 10: less than 1e-7
PY
