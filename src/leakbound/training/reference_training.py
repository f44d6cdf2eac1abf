"""Reference networks: trained as the networks of a run are, by the same defense, on other draws from the same pool.

A comparison with them shows what a network has learned about a record beyond what such networks learn anyway.
"""

from collections.abc import Iterable
from dataclasses import replace

from leakbound.datasets.splits import reference_dataset
from leakbound.randomness.seeding import derive_seed
from leakbound.training.request import TrainingRequest

_PURPOSE = "reference"


def reference_request(
    request: TrainingRequest, count: int, learning_rates: Iterable[float]
) -> TrainingRequest:
    """Request of the reference networks of a run: ``count`` at each learning rate, in place of its replicas.

    Records, weights, batches and noise are drawn from seeds of their own, the same for every defense and
    level, so that comparisons of defenses stay paired.
    """
    config = request.config
    if not request.defense.keeps_best and "best" not in request.lengths:  # their curves are not used
        config = config.model_copy(update={"evaluations": 1})
    return replace(
        request,
        config=config,
        dataset=reference_dataset(request.dataset),
        seed=derive_seed(request.seed, _PURPOSE),
        replicas=count,
        learning_rates=tuple(sorted(set(learning_rates))),
    )
