"""What a defense costs: time of a training step over that of plain SGD, in one process, steps interleaved.

    python benchmarks/training_step.py [--model lenet] [--steps 60]

Prints CPU milliseconds per step and the median of the ratios of neighbouring steps, with their quartiles. Ratios of
neighbours hold on a busy machine too; milliseconds are that machine's.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from leakbound.channels import Channel
from leakbound.config import DPPSAC, DPSGD, ChannelDefense, TrainingConfig, Undefended
from leakbound.datasets import ImageDataset, Split
from leakbound.training import TrainingRequest
from leakbound.training.loop import StackLearner
from leakbound.training.per_sample import PerSampleLearner

BATCH = 64
WARM_UP = 8


def request(model: str, **defense: object) -> TrainingRequest:
    """A run on random images of CIFAR-10's size: what is in them costs no time."""
    generator = np.random.default_rng(0)
    images = generator.uniform(-1, 1, (2000, 3, 32, 32)).astype(np.float32)
    split = Split(images, generator.integers(0, 10, 2000))
    dataset = ImageDataset("random", tuple("0123456789"), split, split, split)
    settings = {"defense": Undefended(), "level": None, **defense}
    return TrainingRequest(
        dataset=dataset,
        model=model,
        rounds=1,
        batch_size=BATCH,
        learning_rate=1e-4,
        config=TrainingConfig(),
        seed=0,
        slug="benchmark",
        **settings,
    )


def learners(model: str) -> dict[str, object]:
    """One learner for each defense."""
    pixels = 3 * 32 * 32
    axes = np.linalg.qr(np.random.default_rng(1).normal(size=(pixels, pixels)))[0]
    variances = np.full(pixels, 0.04)
    natural = {"level": 50.0, "channel": Channel("natural", 50.0, variances)}
    white = {"level": 50.0, "channel": Channel("white", 50.0, variances, basis=axes)}
    one = range(1)
    return {
        "SGD": StackLearner(request(model), one),
        "natural, fresh": StackLearner(request(model, defense=ChannelDefense(), **natural), one),
        "natural, frozen": StackLearner(request(model, defense=ChannelDefense(noise="frozen"), **natural), one),
        "white": StackLearner(request(model, defense=ChannelDefense(shape="white"), **white), one),
        "DP-SGD": PerSampleLearner(request(model, defense=DPSGD(), level=1.0), one),
        "DP-PSAC": PerSampleLearner(request(model, defense=DPPSAC(), level=1.0), one),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured = learners(given.model)
    seconds = {name: np.empty(given.steps) for name in measured}
    for step in range(-WARM_UP, given.steps):
        for name, learner in measured.items():
            began = time.process_time()
            learner.step()
            if step >= 0:
                seconds[name][step] = time.process_time() - began
    # White noise is drawn for several steps at once: compare means over as many.
    blocks = {name: values[: given.steps // 8 * 8].reshape(-1, 8).mean(axis=1) for name, values in seconds.items()}
    print(f"{given.model}, 3x32x32, batch {BATCH}, one thread, {given.steps} steps each")
    print(f"{'defense':<16} {'ms':>7} {'ratio':>7}  quartiles")
    for name, values in blocks.items():
        low, middle, high = np.quantile(values / blocks["SGD"], [0.25, 0.5, 0.75])
        print(f"{name:<16} {1e3 * np.median(values):7.1f} {middle:7.2f}  {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
