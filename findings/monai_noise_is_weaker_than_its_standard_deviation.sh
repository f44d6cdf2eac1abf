#!/usr/bin/env bash
# Expected: RandGaussianNoise(prob=1.0, std=1.0) adds noise of standard deviation 1.
# Seen:     each image has a standard deviation of its own, uniform between 0 and 1: half as much on average, below .1 for a tenth of the
#           images. sample_std=False is the noise that was asked for.
# Versions: monai 1.6.1, torch 2.13.0, numpy 2.4.6
# Date:     2026-12-01
# Means:    a noise multiplier that is stated from std is wrong for nearly all records, and without any limit for the least noisy ones.
# Source:   https://monai.readthedocs.io/en/1.6.0/transforms.html (RandGaussianNoise, sample_std); monai/transforms/intensity/array.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet monai==1.6.1 torch==2.13.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import numpy as np
import torch
from monai.transforms import RandGaussianNoise

image = torch.zeros(1, 32, 32)


def spreads(**settings):
    """Return the standard deviations of the noise of 1,000 images."""
    transform = RandGaussianNoise(prob=1.0, std=1.0, **settings).set_random_state(seed=0)
    return np.array([float(torch.as_tensor(transform(image)).std()) for _ in range(1000)])


usual, fixed = spreads(), spreads(sample_std=False)
print(f"usual: {usual.mean():.2f} on average, {usual.min():.3f} to {usual.max():.2f}, {np.mean(usual < 0.1):.0%} of images below .1")
print(f"sample_std=False: {fixed.mean():.2f}, {fixed.min():.2f} to {fixed.max():.2f}")
assert 0.45 < usual.mean() < 0.55 and usual.min() < 0.01 and 0.07 < np.mean(usual < 0.1) < 0.13, "the behaviour has changed"
assert 0.9 < fixed.min() and fixed.max() < 1.1
PY
