"""The usual Lightning script for a small CNN, with five lines more: whatever it uploads tells a bounded number of nats.

    python examples/lightning_cnn.py --epochs 10 --nats 60

The data are scikit-learn's handwritten digits, so nothing is downloaded; a third of them play the public records. Lines
that end in `# leakbound` are all that is new. Lightning logs what has leaked as `leakage_nats`, keeps the counts in its
checkpoints, and stops once the planned uses are done. It is no dependency: `pip install lightning`.
"""

import argparse

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from leakbound import ChannelEngine, Leakage  # leakbound
from leakbound.engine.lightning import ChannelCallback  # leakbound


class Classifier(lightning.LightningModule):
    """Two convolutions and two dense layers for grey pictures of 8×8 pixels."""

    def __init__(self, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10)),
        )

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Loss of a batch."""
        data, target = batch
        return F.cross_entropy(self.net(data), target)

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        """Share of records that are classified correctly."""
        data, target = batch
        self.log("accuracy", (self.net(data).argmax(dim=1) == target).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def digits() -> tuple[TensorDataset, TensorDataset, TensorDataset]:
    """Public, private and test records: pictures (1, 8, 8) in [0, 1], and labels."""
    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(bunch.target).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    public, private, test = order[:600], order[600:1500], order[1500:]
    return tuple(TensorDataset(images[part], labels[part]) for part in (public, private, test))


def main(words: list[str] | None = None) -> dict[str, float]:
    """Train, and print the accuracy at the end; returns what Lightning has logged."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--nats", type=float, default=60.0)
    args = parser.parse_args(words)
    lightning.seed_everything(1, verbose=False)
    public, private, test = digits()
    train_loader = DataLoader(private, batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(test, batch_size=500)
    callbacks = []
    engine = ChannelEngine.for_data(public, Leakage(args.nats, uses=args.epochs), classes=10)  # leakbound
    callbacks.append(ChannelCallback(engine))  # leakbound
    train_loader = engine.protect(train_loader)  # leakbound
    trainer = lightning.Trainer(
        max_epochs=args.epochs, callbacks=callbacks, logger=False, enable_checkpointing=False, accelerator="cpu"
    )
    trainer.fit(Classifier(args.lr), train_loader, test_loader)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    print(", ".join(f"{name} {value:.3f}" for name, value in found.items()))
    return found


if __name__ == "__main__":
    main()
