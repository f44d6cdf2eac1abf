"""Results of runs as training and attacks would leave them, with effects of known size."""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from leakbound_lab.claims.tabulation import RunResults, tabulate

CHANNELS = {"natural": 0.0, "white": 0.09, "personalized": 0.03}
PRIVATE = {"dpsgd": 0.02, "dppsac": 0.0}
LEVELS = (1.0, 4.0, 16.0)
MULTIPLIERS = (0.5, 1.5, 2.0)


class Part(NamedTuple):
    """Values of one metric of one variant, those of units 0, 1, ... or one of all units."""

    replica: int
    variant: str
    metric: str
    values: np.ndarray | float


def rows_of(parts: Iterator[Part]) -> pd.DataFrame:
    """Rows of an attack."""
    columns = ["replica", "variant", "metric", "unit", "value"]
    rows = [
        (*part[:3], unit if np.ndim(part.values) else -1, value)
        for part in parts
        for unit, value in enumerate(np.atleast_1d(part.values))
    ]
    return pd.DataFrame(rows, columns=columns).assign(
        low=np.nan, high=np.nan, learning_rate=np.nan, chosen=True, status=""
    )


def leak(defense: str, level: float | None) -> float:
    """Between 0 (everything is hidden) and 1 (nothing is)."""
    if level is None:
        return 1.0
    return 1 / (1 + level) if defense in PRIVATE else level / (2 + level)


def inversion(replica: int, openness: float, generator: np.random.Generator) -> Iterator[Part]:
    start = np.linspace(0.018, 0.03, 10)
    printed = 0.02 + 0.3 * (1 - openness) ** 3 + 0.003 * generator.random(10)
    tuned = start * (1 - 0.5 * openness) + 0.001 * generator.random(10)
    for variant, errors in (("start", start), ("printed", printed), ("tuned", tuned)):
        yield Part(replica, variant, "mse", errors)
        yield Part(replica, variant, "gain", start - errors)


def trained(
    dataset: str, model: str, defense: str, level: float | None, replicas: int, generator: np.random.Generator
) -> RunResults:
    openness = leak(defense, level)
    curves, members, inverted = [], [], []
    for replica in range(replicas):
        accuracy = 0.55 + 0.4 * openness - {**CHANNELS, **PRIVATE}.get(defense, 0.0) + 0.012 * generator.normal()
        values = {"test_accuracy": accuracy, "train_accuracy": min(1.0, accuracy + 0.1 * openness)}
        curves += [(replica, 600, metric, value) for metric, value in values.items()]
        for variant, area in (("strongest", 0.5 + 0.17 * openness), ("loss_threshold", 0.5 + 0.1 * openness)):
            members.append(Part(replica, variant, "auc", area + 0.01 * generator.normal()))
        inverted += inversion(replica, openness, generator)
    inside = {"learning_rate": 0.01, "chosen": True, "at_edge": False, "diverged": False}
    return RunResults(
        f"{dataset}/{model}/{defense}-{level}/n600-b64",
        dataset,
        model,
        defense,
        level,
        rounds=600,
        batch_size=64,
        rates=pd.DataFrame({"replica": range(replicas), **inside}),
        curves=pd.DataFrame(curves, columns=["replica", "step", "metric", "value"]).assign(learning_rate=0.01),
        attacks={
            "membership": rows_of(members).assign(learning_rate=0.01),
            "model_inversion": rows_of(inverted).assign(learning_rate=0.01),
        },
    )


def sweep(*defenses: str) -> list[tuple[str, float | None]]:
    """Defenses with their levels."""
    levels = {"none": (None,), **dict.fromkeys(CHANNELS, LEVELS), **dict.fromkeys(PRIVATE, MULTIPLIERS)}
    return [(defense, level) for defense in levels if defense in defenses for level in levels[defense]]


@pytest.fixture(scope="session")
def make_study() -> Callable[..., pd.DataFrame]:
    def make(
        datasets: tuple[str, ...] = ("digits",),
        models: tuple[str, ...] = ("lenet",),
        replicas: int = 3,
        defenses: Collection[str] = ("none", *CHANNELS, *PRIVATE),
    ):
        generator = np.random.default_rng(5)
        settings = [(dataset, model) for dataset in datasets for model in models]
        pairs = sweep(*defenses)
        return tabulate(trained(*setting, *pair, replicas, generator) for setting in settings for pair in pairs)

    return make


RATES = (0.003, 0.01, 0.03, 0.1)
ARMS: dict[str, tuple[float | None, ...]] = {
    "none": (None,),
    "early_stopping": (None,),
    "stopped": (0.125, 0.25, 0.5),
    "natural": (50.0, 100.0, 300.0),
    "white": (500.0, 1000.0, 1500.0),
    "personalized": (500.0, 1000.0),
    "dpsgd": (0.2066, 0.46, 0.8),
    "dppsac": (0.46, 0.8),
    "clipping": (0.0,),
}
AHEAD = {"white": 0.05, "dpsgd": -0.04}
"""Accuracy that an arm has beyond plain SGD at equal leakage; the others are plain SGD at another speed."""
EPSILONS = {("dpsgd", 0.2066): 391.76, ("dpsgd", 0.46): 40.97, ("dpsgd", 0.8): 9.19, ("clipping", 0.0): np.inf}


def slot_rows(defense: str, progress: float, noise: np.ndarray) -> list[tuple[str, str, str, float]]:
    """Rows of one slot: plain SGD's accuracy and leakage after so much progress, and what the arm has beyond that."""
    ahead = AHEAD.get(defense, 0.0) * min(1.0, 4 * progress)
    accuracy = 0.1 + 0.35 * (1 - np.exp(-3 * progress)) + ahead + 0.006 * noise[0]
    return [
        ("training", "", "test_accuracy", accuracy),
        ("training", "", "train_accuracy", min(1.0, accuracy + 0.3 * progress)),
        ("training", "", "validation_accuracy", accuracy + 0.004 * noise[3]),
        ("membership", "strongest", "auc", 0.5 + 0.2 * progress**1.5 + 0.006 * noise[1]),
        ("model_inversion", "tuned", "gain", 0.004 * progress + 0.0004 * noise[2]),
    ]


@pytest.fixture(scope="session")
def recipes() -> pd.DataFrame:
    """Study that keeps all candidate rates: accuracy rises and members leak with progress, rate times rounds."""
    generator = np.random.default_rng(11)
    rows: list[tuple[object, ...]] = []
    for dataset in ("cifar10", "svhn"):
        shared = generator.normal(size=(5, 4))
        for defense, levels in ARMS.items():
            for rank, level in enumerate(levels):
                run = (f"{dataset}/lenet/{defense}-{level}", dataset, defense, np.nan if level is None else level)
                slowed = level if defense == "stopped" else 0.6 if defense == "early_stopping" else 1 - 0.2 * rank
                for replica, index in np.ndindex(5, len(RATES)):
                    progress = float(slowed or 1.0) * (index + 1) / len(RATES)
                    found = slot_rows(defense, progress, shared[replica] + 0.5 * generator.normal(size=4))
                    rows += [(*run, replica, RATES[index], *row) for row in found]
                if (defense, level) in EPSILONS:
                    epsilon = ("accounting", "replica", "epsilon", EPSILONS[defense, level])
                    rows.append((*run, -1, np.nan, *epsilon))
    names = ["run", "dataset", "defense", "level", "replica", "learning_rate", "source", "variant", "metric", "value"]
    table = pd.DataFrame(rows, columns=names).assign(model="lenet", rounds=600, batch_size=64, unit=-1, status="")
    best = table[table["metric"] == "validation_accuracy"].sort_values("value").groupby(["run", "replica"]).last()
    rate = table.set_index(["run", "replica"]).index.map(best["learning_rate"]).to_numpy(float)
    table["chosen"] = table["learning_rate"].isna() | (table["learning_rate"] == rate)
    edges = table[table["metric"] == "validation_accuracy"].assign(metric="at_edge", value=0.0)
    return pd.concat([table, edges], ignore_index=True)


@pytest.fixture(scope="session")
def study(make_study: Callable[..., pd.DataFrame]) -> pd.DataFrame:
    return make_study()


@pytest.fixture(scope="session")
def gradients() -> pd.DataFrame:
    """Errors of inversions of gradients over defenses and levels, and those of the mean image."""
    generator = np.random.default_rng(6)
    rows = [
        (defense, level, replica, variant, error + 0.02 * generator.random())
        for defense, level in sweep("none", *CHANNELS)
        for replica in range(8)
        for variant, error in (("attack", 0.12 * (1 - leak(defense, level))), ("prior", 0.05))
    ]
    named = pd.DataFrame(rows, columns=["defense", "level", "replica", "variant", "value"])
    named["run"] = named["defense"] + "-" + named["level"].astype(str)
    return named.assign(dataset="digits", model="lenet_sigmoid", metric="mse", unit=-1, rounds=0, batch_size=1)
