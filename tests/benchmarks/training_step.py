"""What a defense costs: time of a training step over that of plain SGD, in one process, turns interleaved.

    python tests/benchmarks/training_step.py [--model lenet] [--batch 64] [--steps 8] [--turns 5] [--defenses dpsgd]

Prints CPU milliseconds per step and the median of the ratios within a turn, with their quartiles. Ratios of neighbours
hold on a busy machine too; milliseconds are that machine's. Each defense holds its network, gradient and momentum: to
spare memory measure a large network against a few defenses at a time.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from scipy.fft import dct

from leakbound.channels import GaussianChannel
from leakbound.config.defenses import DPPSAC, DPSGD, ChannelDefense, Undefended
from leakbound.config.training import TrainingConfig
from leakbound.datasets import Drawing, ImageDataset, Split
from leakbound.training import TrainingRequest
from leakbound.training.efficiency import BASELINE, measure_steps

PIXELS = 3 * 32 * 32


def settings() -> dict[str, dict[str, object]]:
    """Defense, level and channel of what can be measured."""
    variances = np.full(PIXELS, 0.04)
    colored = 0.04 * np.arange(1, PIXELS + 1) ** -1.3
    natural = {"level": 50.0, "channel": GaussianChannel("natural", 50.0, variances)}
    white = {"level": 50.0, "channel": GaussianChannel("white", 50.0, colored, basis=dct(np.eye(PIXELS), norm="ortho"))}
    return {
        BASELINE: {"defense": Undefended(), "level": None},
        "natural": {"defense": ChannelDefense(), **natural},
        "natural_frozen": {"defense": ChannelDefense(noise="frozen"), **natural},
        "white": {"defense": ChannelDefense(shape="white"), **white},
        "dpsgd": {"defense": DPSGD(), "level": 1.0},
        "dppsac": {"defense": DPPSAC(), "level": 1.0},
    }


def requests(
    model: str, batch_size: int, defenses: list[str], shape: tuple[int, int, int] = (3, 32, 32)
) -> dict[str, TrainingRequest]:
    """Runs on random images, by default of CIFAR-10's size: what is in them costs no time."""
    generator = np.random.default_rng(0)
    images = generator.uniform(-1, 1, (2000, *shape)).astype(np.float32)
    split = Split(images, generator.integers(0, 10, 2000))
    dataset = ImageDataset("random", tuple("0123456789"), split, split, split, Drawing(900, 200, seed=0))
    return {
        name: TrainingRequest(
            dataset=dataset,
            model=model,
            rounds=1,
            batch_size=batch_size,
            learning_rates=(1e-4,),
            config=TrainingConfig(),
            seed=0,
            slug="benchmark",
            **values,
        )
        for name, values in settings().items()
        if name == BASELINE or name in defenses
    }


def main() -> None:
    """Measure and print."""
    names = ["natural", "natural_frozen", "white", "dpsgd", "dppsac"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--batch", type=int, default=64, help="records in a step")
    parser.add_argument("--steps", type=int, default=8, help="steps in a turn; white noise is drawn for eight at once")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--defenses", nargs="+", choices=names, default=names)
    given = parser.parse_args()
    torch.set_num_threads(1)
    chosen = requests(given.model, given.batch, given.defenses)
    times = measure_steps(chosen, steps=given.steps, repeats=given.turns)
    turns = times.pivot(index="repetition", columns="defense", values="seconds")
    print(f"{given.model}, 3x32x32, batch {given.batch}, one thread, {given.turns} turns of {given.steps} steps")
    print(f"{'defense':<16} {'ms':>7} {'ratio':>7}  quartiles")
    for name in chosen:
        low, middle, high = (turns[name] / turns[BASELINE]).quantile([0.25, 0.5, 0.75])
        print(f"{name:<16} {1e3 * turns[name].median():7.1f} {middle:7.2f}  {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
