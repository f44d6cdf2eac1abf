#!/usr/bin/env bash
# Expected: the row of an Embedding that padding_idx names gets no gradient, in Opacus as in PyTorch.
# Seen:     its per-sample gradient is that of an ordinary row: it counts in the norm that is clipped, and the row is moved.
# Versions: torch 2.13.0, opacus 1.6.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    the number of padded places of a record enters its gradient: pad all to one length, or mask them before they are averaged.
# Source:   opacus/grad_sample/embedding.py; https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet opacus==1.6.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from opacus import GradSampleModule

texts = torch.tensor([[0, 1, 2], [0, 0, 3]])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(5, 3, padding_idx=0), torch.nn.Linear(3, 1)

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1)).sum(1)


torch.manual_seed(0)
network = Network()
weight = network.embedding.weight
exact = torch.stack([torch.autograd.grad(network(text[None]).sum(), weight)[0] for text in texts])
GradSampleModule(network, loss_reduction="sum")(texts).sum().backward()
norms = {"PyTorch": exact[:, 0].norm(dim=1).tolist(), "Opacus": weight.grad_sample[:, 0].norm(dim=1).tolist()}
print("norms of the gradient of the padding row, of each record:", norms)
assert norms["PyTorch"] == [0, 0]
assert torch.allclose(weight.grad_sample[:, 1:], exact[:, 1:])
assert min(norms["Opacus"]) > 0.1, "the behaviour has changed"
PY
