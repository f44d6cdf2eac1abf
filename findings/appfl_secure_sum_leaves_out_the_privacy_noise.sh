#!/usr/bin/env bash
# Expected: an APPFL client with use_dp and use_secure_agg adds the noise of its ε to its weights and masks what comes out, as it sends noisy weights
#           without use_secure_agg.
# Seen:     the masked update is made of the weights before the noise: the sum of three clients at ε = .1 is, bit for bit, that without use_dp.
#           Nothing is said; the gaussian and the laplace mechanism are alike.
# Versions: appfl 1.12.0, torch 2.13.0, opacus 1.6.0, omegaconf 2.4.0, wandb 0.31.0, colorama 0.4.6, numpy 2.4.6
# Date:     2026-11-30
# Means:    the aggregate, and the published network, have no differential privacy: the sum is all that the masks hide. Add noise to the
#           update yourself where both are asked for.
# Source:   appfl/algorithm/trainer/vanilla_trainer.py, local_state = self.model.state_dict() under use_secure_agg
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 omegaconf==2.4.0 wandb==0.31.0 colorama==0.4.6 numpy==2.4.6
"$folder/venv/bin/python" -m pip install --quiet --no-deps appfl==1.12.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import logging

import torch
from appfl.algorithm.trainer import VanillaTrainer
from appfl.logger import ClientAgentFileLogger
from omegaconf import OmegaConf

logging.disable(logging.INFO)
generator = torch.Generator().manual_seed(0)
inputs = torch.randn(32, 4, generator=generator)
records = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
names = ["a", "b", "c"]
settings = dict(mode="epoch", num_local_epochs=1, optim="SGD", optim_args={"lr": 0.01}, train_batch_size=32, device="cpu")
settings |= dict(clip_grad=True, clip_value=1.0, clip_norm=2, epsilon=0.1)


def sent(name, **options):
    network = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(network.weight, 5.0)
    trainer = VanillaTrainer(
        model=network,
        loss_fn=torch.nn.MSELoss(),
        metric=lambda truth, predicted: 0.0,
        train_dataset=records,
        train_configs=OmegaConf.create(settings | options),
        logger=ClientAgentFileLogger(),
        client_id=name,
        runtime_context={"all_client_ids": names, "round_id": 0, "secure_agg_secret": b"shared"},
    )
    trainer.train()
    return trainer.get_parameters()[0]


for mechanism in ("gaussian", "laplace"):
    torch.manual_seed(1)
    private = {"use_dp": True, "dp_mechanism": mechanism}
    noisy = torch.cat([sent(name, **private)["weight"] for name in names])
    masked = sum(sent(name, use_secure_agg=True, **private)["flat"] for name in names) / 3
    exact = sum(sent(name, use_secure_agg=True, use_dp=False)["flat"] for name in names) / 3
    spread = f"{noisy.std(0).min():.2f} to {noisy.std(0).max():.2f}"
    print(f"{mechanism}: weights that are sent openly deviate by {spread}")
    print(f"    mean update behind masks {masked.numpy().round(4)}, without DP {exact.numpy().round(4)}")
    assert noisy.std(0).min() > 0.05
    assert torch.equal(masked, exact), "the behaviour has changed"
PY
