"""A perceptron that memorizes handwritten digits, and what an audit of it needs.

    python examples/audit/digits.py audited
    leakbound audit --checkpoint audited/network.pt --script examples/audit/digits.py:score \
        --members audited/members.npz --others audited/others.npz --epsilon 1 --out audit.html

The first line trains, and writes the network and its records. The second one executes this file again: it calls `load`
for the checkpoint, and `score` for records. A fifth of all labels is wrong, as in many collections, and the network
memorizes them. With `--steps 0` it is not trained.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def perceptron() -> nn.Module:
    """64 pixels, 256 hidden units, 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def load(path: Path) -> nn.Module:
    """The network of a checkpoint, ready to be evaluated."""
    network = perceptron()
    network.load_state_dict(torch.load(path, weights_only=True))
    return network.eval()


@torch.no_grad()
def score(network: nn.Module, records: np.ndarray, labels: np.ndarray) -> torch.Tensor:
    """Logits of all classes; a loss of each record would do as well, torch.nn.functional.cross_entropy(...)."""
    return network(torch.from_numpy(records))


def main(words: list[str] | None = None) -> None:
    """Divide digits by chance, train on one part, and write files for the audit."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--steps", type=int, default=400)
    options.add_argument("--members", type=int, default=500)
    options.add_argument("--wrong", type=float, default=0.2, help="share of all labels that are drawn at random")
    given = options.parse_args(words)
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)
    labels = np.where(draw.random(len(images)) < given.wrong, draw.integers(0, 10, len(images)), digits.target)
    order = draw.permutation(len(images))
    parts = {"members": order[: given.members], "others": order[given.members :]}
    network, records = perceptron(), torch.from_numpy(images[parts["members"]])
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(given.steps):
        loss = nn.functional.cross_entropy(network(records), torch.from_numpy(labels[parts["members"]]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    given.folder.mkdir(parents=True)
    torch.save(network.state_dict(), given.folder / "network.pt")
    for name, rows in parts.items():
        np.savez(given.folder / f"{name}.npz", records=images[rows], labels=labels[rows])


if __name__ == "__main__":
    main()
