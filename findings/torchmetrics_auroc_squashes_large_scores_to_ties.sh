#!/usr/bin/env bash
# Expected: the AUROC and ROC of torchmetrics depend on the order of the scores alone, as scikit-learn's do: a sigmoid changes no order.
# Seen:     scores outside 0 to 1 go through a sigmoid in float32, which is 1 from 17 on: of log-likelihood ratios around 20 the AUROC is .56
#           where it is .83. The range is looked at in each update: a batch of losses below 1 stays as it is, and one of
#           losses to 2 is squashed, so that the two are compared in different units.
# Versions: torchmetrics 1.9.0, torch 2.13.0, scikit-learn 1.9.1, numpy 2.4.6
# Date:     2026-11-30
# Means:    an attack on membership that works reads as one that guesses, and figures depend on the size of batches; pass ranks / n, or use
#           scikit-learn.
# Source:   https://lightning.ai/docs/torchmetrics/stable/classification/auroc.html (the sigmoid); torchmetrics/utilities/compute.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet torchmetrics==1.9.0 scikit-learn==1.9.1 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from sklearn.metrics import roc_auc_score
from torchmetrics.classification import BinaryAUROC

generator = torch.Generator().manual_seed(0)
member = torch.arange(2000) % 2
ratios = 20 + 4 * member + 3 * torch.randn(2000, generator=generator)
found, exact = BinaryAUROC()(ratios, member).item(), roc_auc_score(member, ratios)
print(f"log-likelihood ratios around 20: {found:.3f}, scikit-learn {exact:.3f}")
assert exact > 0.82 and found < 0.6, "the behaviour has changed"
assert abs(BinaryAUROC()(ratios.argsort().argsort() / 2000, member).item() - exact) < 1e-4

# A client with losses below 1, and one with losses to 2, of which the members' are the smaller ones.
losses = [torch.linspace(0.80, 0.95, 500), torch.linspace(1.1, 2.0, 500)]
labels = [torch.ones(500, dtype=torch.long), torch.zeros(500, dtype=torch.long)]
whole, parts = BinaryAUROC(), BinaryAUROC()
whole.update(torch.cat(losses), 1 - torch.cat(labels))
for loss, label in zip(losses, labels, strict=True):
    parts.update(loss, 1 - label)
print(f"losses of two clients: in one batch {whole.compute():.3f}, in a batch each {parts.compute():.3f}")
assert whole.compute() == 1.0 and parts.compute() < 0.6
PY
