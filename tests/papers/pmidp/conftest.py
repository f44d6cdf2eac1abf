"""A federation small enough to run in a moment."""

from collections.abc import Callable

import numpy as np
import pytest

from images import gathered
from leakbound_lab.config.federated import FederatedConfig, FederatedRun
from leakbound_lab.datasets import ImageDataset, Split
from leakbound_lab.papers.pmidp.averaging import FederatedRequest


def images(count: int, generator: np.random.Generator) -> Split:
    """Noise with a bright column that tells the class."""
    labels = np.arange(count) % 4
    pixels = 0.3 * generator.standard_normal((count, 1, 32, 32))
    pixels[np.arange(count), 0, :, 8 * labels] += 0.6
    return Split(np.clip(pixels, -1, 1).astype(np.float32), labels.astype(np.int64))


@pytest.fixture(scope="session")
def dataset() -> ImageDataset:
    generator = np.random.default_rng(0)
    pool, test, aux = (images(count, generator) for count in (420, 80, 10))
    secret = "s" * 64
    return gathered(
        pool, members=200, validation=20, test=test, aux=aux, name="bars", classes=("a", "b", "c", "d"), secret=secret
    )


@pytest.fixture(scope="session")
def make_request(dataset: ImageDataset) -> Callable[..., FederatedRequest]:
    def make(
        scheme: str = "client", *, seed: int = 0, replicas: int = 1, checkpoint=None, records: int = 20, **changes
    ):
        noisy = scheme != "none"
        run = {
            "n_clients": 6,
            "max_param_norm": 5.0 if noisy else None,
            "mi_budget": 2000.0 if noisy else None,
            "budget_spread": 500.0 if scheme in ("personalized", "uniform", "sampled") else None,
        }
        settings = {"communication_rounds": 3, "local_epochs": 2, "batch_size": 8, "learning_rate": 0.1}
        for name, value in changes.items():
            (run if name in run else settings)[name] = value
        return FederatedRequest(
            dataset=dataset,
            run=FederatedRun(dataset="bars", model="mlp", scheme=scheme, **run),
            config=FederatedConfig(**{"evaluations": 3, **settings}),
            records=records,
            seed=seed,
            replicas=replicas,
            checkpoint=checkpoint,
        )

    return make
