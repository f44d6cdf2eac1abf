"""The usual PyTorch script for a small CNN, with five lines more: whatever it uploads tells a bounded number of nats.

    python examples/pytorch_cnn.py --epochs 10 --nats 60

The data are scikit-learn's handwritten digits, so nothing is downloaded; a third of them play the public records. Lines
that end in `# leakbound` are all that is new.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import leakbound  # leakbound


class Net(nn.Module):
    """Two convolutions and two dense layers for grey pictures of 8×8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the ten digits."""
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)


def digits() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Public, private and test records: pictures (1, 8, 8) in [0, 1], and labels."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    public, private, test = order[:600], order[600:1500], order[1500:]
    return tuple(TensorDataset(images[part], labels[part]) for part in (public, private, test))


def train(model: nn.Module, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    """One epoch."""
    model.train()
    for data, target in loader:
        optimizer.zero_grad()
        F.nll_loss(model(data), target).backward()
        optimizer.step()


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader) -> float:
    """Share of test records that are classified correctly."""
    model.eval()
    hits = sum(int((model(data).argmax(dim=1) == target).sum()) for data, target in loader)
    return hits / len(loader.dataset)


def main(words: list[str] | None = None) -> float:
    """Train, and print the accuracy after each epoch; returns the last one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--nats", type=float, default=60.0)
    args = parser.parse_args(words)
    torch.manual_seed(1)
    public, private, test = digits()
    train_loader = DataLoader(private, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test, batch_size=500)
    target = leakbound.Leakage(args.nats, uses=args.epochs)  # leakbound
    engine = leakbound.ChannelEngine.for_data(public, target, classes=10)  # leakbound
    train_loader = engine.protect(train_loader)  # leakbound
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        train(model, train_loader, optimizer)
        print(f"epoch {epoch + 1}: test accuracy {accuracy(model, test_loader):.3f}")
    print(engine.leakage())  # leakbound
    return accuracy(model, test_loader)


if __name__ == "__main__":
    main()
