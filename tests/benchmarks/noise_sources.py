"""What secure noise costs: time over that of seeded noise, in one process, turns interleaved.

    python tests/benchmarks/noise_sources.py [--turns 9] [--steps 8]

Prints CPU milliseconds with seeded noise and the median of the ratios within a turn, with their quartiles: of one use
of a channel for 64 images of 3×32×32 and of noise for the gradient of LeNet, which are noise and nothing else, and of
whole training steps of LeNet at batch size 64. Ratios of neighbours hold on a busy machine too; milliseconds are that
machine's.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from training_step import PIXELS, requests, settings

from leakbound.channels.sampling import ChannelSampler
from leakbound.config.defenses import ParameterNoise
from leakbound.randomness.grid import perturbed
from leakbound.randomness.sources import NoiseSource, noise_source
from leakbound.training.efficiency import clock_of, measure_steps

ORIGINS = ("seeded", "secure")
DEFENSES = ("natural", "white", "dpsgd", "parameter_noise")
PARAMETERS = 62_006  # of LeNet for 3 colors


def draws() -> dict[str, Callable[[NoiseSource], object]]:
    """What noise alone is drawn for."""
    images = torch.rand(64, 3, 32, 32) * 2 - 1
    gradient = torch.randn(PARAMETERS)
    found: dict[str, Callable[[NoiseSource], object]] = {
        "gradient noise": lambda source: perturbed(gradient, 0.5, source)
    }
    for name in ("natural", "white"):
        channel = settings()[name]["channel"]
        samplers = {flag: ChannelSampler(channel, (3, 32, 32), on_grid=flag) for flag in (False, True)}
        found[f"{name} draw"] = lambda source, samplers=samplers: samplers[source.secure].apply(images, source)
    return found


def drawn(turns: int) -> pd.DataFrame:
    """Seconds of each draw with each origin."""
    clock, rows = clock_of("cpu"), []
    for name, draw in draws().items():
        sources = {origin: noise_source(origin, 0, "benchmark") for origin in ORIGINS}
        for turn in range(-1, turns):
            for origin, source in sources.items():
                began = clock()
                draw(source)
                if turn >= 0:
                    rows.append((name, origin, turn, clock() - began))
    return pd.DataFrame(rows, columns=["work", "origin", "turn", "seconds"])


def stepped(turns: int, steps: int) -> pd.DataFrame:
    """Seconds of a training step of each defense with each origin."""
    plain = requests("lenet", 64, ["natural", "white", "dpsgd"])
    plain["parameter_noise"] = dataclasses.replace(plain["dpsgd"], defense=ParameterNoise(), level=1e-3)
    chosen = {
        f"{name} step/{origin}": dataclasses.replace(plain[name], privacy_noise=origin)
        for name in DEFENSES
        for origin in ORIGINS
    }
    times = measure_steps(chosen, steps=steps, repeats=turns)
    named = times["defense"].str.split("/", expand=True)
    return times.assign(work=named[0], origin=named[1], turn=times["repetition"])[["work", "origin", "turn", "seconds"]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--steps", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(1)
    times = pd.concat([drawn(5 * given.turns), stepped(given.turns, given.steps)])
    print(f"3x32x32 ({PIXELS} values), batch 64, one thread")
    print(f"{'work':<22} {'seeded, ms':>10} {'ratio':>7}  quartiles")
    for name, rows in times.groupby("work", sort=False):
        turns = rows.pivot(index="turn", columns="origin", values="seconds")
        low, middle, high = np.quantile(turns["secure"] / turns["seeded"], [0.25, 0.5, 0.75])
        print(f"{name:<22} {1e3 * turns['seeded'].median():10.2f} {middle:7.2f}  {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
