"""Runs of each defense on random images, whose training steps are timed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.fft import dct

from leakbound.channels import GaussianChannel
from leakbound_lab.config.defenses import DPPSAC, DPSGD, ChannelDefense, Undefended
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.datasets import Drawing, ImageDataset, Split
from leakbound_lab.training import TrainingRequest
from leakbound_lab.training.efficiency import BASELINE

PIXELS = 3 * 32 * 32


def settings() -> dict[str, dict[str, object]]:
    """Defense, level and channel of what can be measured."""
    variances = np.full(PIXELS, 0.04)
    colored = 0.04 * np.arange(1, PIXELS + 1) ** -1.3
    natural = {"level": 50.0, "channel": GaussianChannel("natural", 50.0, variances)}
    by_weights = GaussianChannel("personalized", 50.0, np.linspace(0.02, 0.06, PIXELS))
    white = {"level": 50.0, "channel": GaussianChannel("white", 50.0, colored, basis=dct(np.eye(PIXELS), norm="ortho"))}
    return {
        BASELINE: {"defense": Undefended(), "level": None},
        "natural": {"defense": ChannelDefense(), **natural},
        "natural_frozen": {"defense": ChannelDefense(noise="frozen"), **natural},
        "white": {"defense": ChannelDefense(shape="white"), **white},
        "personalized": {"defense": ChannelDefense(shape="personalized"), "level": 50.0, "channel": by_weights},
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


def quartiles(values: np.ndarray | Sequence[float]) -> dict[str, float]:
    """Median and quartiles of times."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return {"value": float(middle), "low": float(low), "high": float(high)}
