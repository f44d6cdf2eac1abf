"""A classifier on features of a frozen encoder, with four lines more that bound what it is told of a record.

    python examples/embeddings.py images --nats 10
    python examples/embeddings.py text --nats 10

Images are scikit-learn's handwritten digits, seen through a small convolutional encoder; texts are paragraphs of
Python's own language reference, seen through a bag of character n-grams and its 32 main directions. Nothing is
downloaded: both encoders learn from the first public part in seconds, where yours would come from a hub. The channel is
calibrated to the second public part, whose features look like those of new records. Lines that end in `# leakbound` are
all that is new.
"""

import argparse
import pydoc_data.topics
from collections.abc import Callable

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import leakbound  # leakbound

Encoder = Callable[[np.ndarray], np.ndarray]
TOPICS = ("types", "specialnames", "typesseq", "formatstrings", "import", "compound", "exprlists", "debugger")


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Pictures (n, 1, 8, 8) in [0, 1], and labels."""
    bunch = load_digits()
    return bunch.images.astype(np.float32)[:, None] / 16, bunch.target


def paragraphs() -> tuple[np.ndarray, np.ndarray]:
    """Paragraphs of Python's language reference, and which of eight topics they are from."""
    found = [
        (" ".join(part.split()), number)
        for number, topic in enumerate(TOPICS)
        for part in pydoc_data.topics.topics.get(topic, "").split("\n\n")
        if len(part) > 80
    ]
    return np.array([text for text, _ in found], dtype=object), np.array([number for _, number in found])


def image_encoder(images: np.ndarray, labels: np.ndarray) -> Encoder:
    """The 32 features before the last layer of a small network that has learned some digits."""
    torch.manual_seed(0)
    features = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(32 * 16, 32), nn.Tanh()),
    )
    model = nn.Sequential(features, nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    inputs, targets = torch.from_numpy(images), torch.from_numpy(labels)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()

    @torch.no_grad()
    def encode(records: np.ndarray) -> np.ndarray:
        return features(torch.from_numpy(records)).double().numpy()

    return encode


def text_encoder(texts: np.ndarray, labels: np.ndarray) -> Encoder:
    """Main directions of a bag of character n-grams."""
    words = TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), sublinear_tf=True, min_df=2)
    return make_pipeline(words, TruncatedSVD(32, random_state=0)).fit(texts).transform


def main(words: list[str] | None = None) -> float:
    """Train the classifier on features; prints and returns its test accuracy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("images", "text"))
    parser.add_argument("--nats", type=float, default=10.0)
    args = parser.parse_args(words)
    records, labels = digits() if args.what == "images" else paragraphs()
    order = np.random.default_rng(0).permutation(len(records))
    learned, public, private, test = np.split(order, [len(order) // 4, len(order) // 2, 3 * len(order) // 4])
    encode = (image_encoder if args.what == "images" else text_encoder)(records[learned], labels[learned])
    features = encode(records[private])
    channel = leakbound.Channel(leakbound.Capacity(args.nats)).fit(encode(records[public]))  # leakbound
    features = channel.transform(features)  # leakbound
    classifier = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=1000)).fit(
        features, labels[private]
    )
    accuracy = float(classifier.score(encode(records[test]), labels[test]))
    print(f"{len(private)} private records, test accuracy {accuracy:.3f}")
    said = "nats of a record on average, plus its label, not counted"  # leakbound
    print(f"the features that it saw reveal at most {channel.leakage():.3f} {said}")  # leakbound
    return accuracy


if __name__ == "__main__":
    main()
