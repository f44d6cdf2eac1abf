#!/usr/bin/env bash
# Expected: a schedule of noise or clipping that PrivacyEngine.save_checkpoint wrote goes on after load_checkpoint where it stopped.
# Seen:     the number of the epoch is loaded, the level is not: it is in the optimizer's noise_multiplier and max_grad_norm, which no state
#           holds. A noise of 4 halved in each epoch is .25 in the fourth, and 2 after a restart; a clipping norm .0625, and .5.
# Versions: torch 2.13.0, opacus 1.6.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    with a growing noise (gamma above 1) the resumed epochs spend more than was planned, with a shrinking one they learn less. ε of the
#           accountant is right. Set both attributes yourself after loading, or use LambdaNoise and LambdaGradClip.
# Source:   opacus/schedulers/noise_scheduler.py, ExponentialNoise.get_noise_multiplier; opacus/privacy_engine.py, save_checkpoint
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from opacus import PrivacyEngine
from opacus.schedulers import ExponentialGradClip, ExponentialNoise


def training():
    network = torch.nn.Linear(4, 1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 4)), batch_size=8)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    settings = dict(noise_multiplier=4.0, max_grad_norm=1.0)
    engine = PrivacyEngine()
    network, optimizer, _ = engine.make_private(module=network, optimizer=optimizer, data_loader=loader, **settings)
    noise, clip = ExponentialNoise(optimizer, gamma=0.5), ExponentialGradClip(optimizer, gamma=0.5)
    return engine, optimizer, noise, clip, dict(module=network, optimizer=optimizer, noise_scheduler=noise, grad_clip_scheduler=clip)


engine, steady, *schedules, parts = training()
for _ in range(3):
    for schedule in schedules:
        schedule.step()
engine.save_checkpoint(path="training.pt", **parts)
again, resumed, *loaded, parts = training()
again.load_checkpoint(path="training.pt", **parts)
for schedule in (*schedules, *loaded):
    schedule.step()
print(f"fourth epoch: noise {steady.noise_multiplier}, resumed {resumed.noise_multiplier}; ", end="")
print(f"clipping norm {steady.max_grad_norm}, resumed {resumed.max_grad_norm}")
assert loaded[0].last_epoch == schedules[0].last_epoch == 4
assert (steady.noise_multiplier, steady.max_grad_norm) == (0.25, 0.0625)
assert (resumed.noise_multiplier, resumed.max_grad_norm) == (2.0, 0.5), "the behaviour has changed"
PY
