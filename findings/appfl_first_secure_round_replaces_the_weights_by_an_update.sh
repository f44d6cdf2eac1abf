#!/usr/bin/env bash
# Expected: the first round with secure aggregation gives APPFL's FedAvgAggregator the initial weights of its model plus the mean update, as
#           averaging the clients' weights does.
# Seen:     the aggregator has no global state before the first round and takes the mean update for it: weights of 5 that move by .01 are .01,
#           in the model, too. Later rounds add to that.
# Versions: appfl 1.12.0, torch 2.13.0, opacus 1.6.0, omegaconf 2.4.0, wandb 0.31.0, colorama 0.4.6, numpy 2.4.6
# Date:     2026-11-30
# Means:    what was trained before, or a pretrained network, is lost, and all train on from near 0; a study of attacks on such uploads is one
#           of another network. Set global_state to the model's state yourself before the first round.
# Source:   appfl/algorithm/aggregator/fedavg_aggregator.py, aggregate, if self.global_state is None
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 omegaconf==2.4.0 wandb==0.31.0 colorama==0.4.6 numpy==2.4.6
"$folder/venv/bin/python" -m pip install --quiet --no-deps appfl==1.12.0
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from appfl.algorithm.aggregator import FedAvgAggregator
from appfl.privacy import SecureAggregator
from omegaconf import OmegaConf

names = ["a", "b", "c"]
updates = {name: {"weight": torch.full((1, 4), move)} for name, move in zip(names, (0.005, 0.010, 0.015), strict=True)}


def aggregator(**settings):
    network = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.constant_(network.weight, 5.0)
    return FedAvgAggregator(network, OmegaConf.create(settings))


def masked(round_id):
    flat = {}
    for name in names:
        secure = SecureAggregator(client_id=name, all_client_ids=names, secret=b"shared", device="cpu")
        values, shapes = secure.mask_update(updates[name], round_id)
        flat[name] = {"type": "masked_update_flat", "flat": values, "shapes": shapes, "num_examples": 10}
    return flat


plain, secure, mended = aggregator(), aggregator(use_secure_agg=True), aggregator(use_secure_agg=True)
assert all(each.get_parameters()["weight"].eq(5).all() for each in (plain, secure))
mended.global_state = mended.get_parameters()
weights = {
    "average of weights": plain.aggregate({name: {"weight": 5 + update["weight"]} for name, update in updates.items()}),
    "secure, first round": secure.aggregate(masked(0)),
    "secure, second round": secure.aggregate(masked(1)),
    "secure, state set before": mended.aggregate(masked(0)),
}
for how, state in weights.items():
    print(f"{how}: {state['weight'].numpy().round(4)}")
mean = {how: state["weight"].mean().item() for how, state in weights.items()}
assert abs(mean["average of weights"] - 5.01) < 1e-4 and abs(mean["secure, state set before"] - 5.01) < 1e-4
assert abs(mean["secure, first round"] - 0.01) < 1e-4, "the behaviour has changed"
assert abs(mean["secure, second round"] - 0.02) < 1e-4
assert torch.equal(secure.model.weight.data, weights["secure, second round"]["weight"])
PY
