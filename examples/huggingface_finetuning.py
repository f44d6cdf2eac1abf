"""The usual Hugging Face script that fine-tunes a vision transformer, with five lines more that bound what it tells.

    python examples/huggingface_finetuning.py --epochs 15 --nats 100

Nothing is downloaded: the data are scikit-learn's handwritten digits as a `datasets.Dataset`, and in place of a
checkpoint of the hub a small ViT learns to tell even from odd digits on the public third, in seconds; `--checkpoint`
takes a folder or a name instead. Lines that end in `# leakbound` are all that is new. `transformers` is no dependency:
`pip install transformers datasets`.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader
from transformers import ViTConfig, ViTForImageClassification

import leakbound  # leakbound


def digits() -> tuple[Dataset, Dataset, Dataset]:
    """Public, private and test records: `pixel_values` (1, 8, 8) in [0, 1], and `labels`."""
    bunch = load_digits()
    images, labels = bunch.images.astype("float32")[:, None] / 16, bunch.target
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).numpy()
    public, private, test = order[:600], order[600:1500], order[1500:]
    return tuple(
        Dataset.from_dict({"pixel_values": images[part], "labels": labels[part]}).with_format("torch")
        for part in (public, private, test)
    )


def train(model: ViTForImageClassification, loader: DataLoader, epochs: int, lr: float, classes: int) -> None:
    """AdamW on the model's own loss; labels are taken modulo ``classes``."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            model(pixel_values=batch["pixel_values"], labels=batch["labels"] % classes).loss.backward()
            optimizer.step()


def made_checkpoint(public: Dataset, folder: Path) -> Path:
    """A small ViT that tells even from odd digits, saved as one of the hub is."""
    config = ViTConfig(
        **{"image_size": 8, "patch_size": 2, "num_channels": 1, "num_labels": 2},
        **{"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
    )
    model = ViTForImageClassification(config)
    train(model, DataLoader(public, batch_size=32, shuffle=True), 10, 2e-3, classes=2)
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def accuracy(model: ViTForImageClassification, test: Dataset) -> float:
    """Share of test records that are classified correctly."""
    model.eval()
    return float((model(pixel_values=test["pixel_values"][:]).logits.argmax(dim=1) == test["labels"][:]).float().mean())


def main(words: list[str] | None = None) -> float:
    """Fine-tune; prints and returns the test accuracy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", help="Folder or name of a ViT; one is made here without it.")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--nats", type=float, default=100.0)
    args = parser.parse_args(words)
    torch.manual_seed(1)
    public, private, test = digits()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = args.checkpoint or made_checkpoint(public, Path(folder))
        model = ViTForImageClassification.from_pretrained(checkpoint, num_labels=10, ignore_mismatched_sizes=True)
    target = leakbound.Leakage(args.nats, uses=args.epochs)  # leakbound
    engine = leakbound.ChannelEngine.for_data(public, target, key="pixel_values", classes=10)  # leakbound
    private = engine.protect(private)  # leakbound
    train(model, DataLoader(private, batch_size=32, shuffle=True), args.epochs, args.lr, classes=10)
    found = accuracy(model, test)
    print(f"test accuracy {found:.3f}")
    print(engine.leakage())  # leakbound
    return found


if __name__ == "__main__":
    main()
