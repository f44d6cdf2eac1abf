"""The learning rate of a run, by a search of equal budget for every defense and level."""

import dataclasses
import logging
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from leakbound.datasets import ImageDataset, Split
from leakbound.randomness.seeding import numpy_generator
from leakbound.training.request import TrainingRequest
from leakbound.training.trainers import train

logger = logging.getLogger("leakbound")


@dataclass(frozen=True)
class LearningRateSearch:
    """Trials of a search, and its choice.

    Attributes:
        table: Columns ``learning_rate``, ``validation_accuracy``, ``validation_loss`` (nats; both NaN if diverged) and
            ``diverged``, one row a trial.
        learning_rate: The best one.
    """

    table: pd.DataFrame
    learning_rate: float


def search_learning_rate(request: TrainingRequest) -> LearningRateSearch:
    """Train one replica per candidate and take the one that does best on members held out.

    Every candidate trains ``search_rounds`` steps from the same weights on the same batches; ``validation_fraction`` of
    the members are held out, the same ones for every candidate. Accuracy is measured on their clean images, which the
    client owns. Of all candidates that come within a standard error of the best accuracy the one with the smallest loss
    is taken: a search is shorter than the training, and before a network leaves the plateau on which it knows no more
    than how frequent the classes are, only the loss tells which candidate gets ahead. A diverged one is never taken
    while there is another. What the choice itself tells of the records is in no accountant's figure.

    Args:
        request: The run. Its ``learning_rate``, ``rounds``, ``replicas`` and ``checkpoint`` are not used; candidates
            are those of its defense or, if it has none, of its ``config``.

    Raises:
        UntrainableError: If a candidate cannot be trained, e.g. because the batch exceeds the members that are left.
    """
    config = request.config
    candidates = sorted(set(request.defense.learning_rates or config.learning_rates))
    trial = dataclasses.replace(
        request,
        dataset=_divide(request),
        rounds=config.search_rounds,
        config=config.model_copy(update={"evaluations": 1}),
        slug=f"{request.slug}/search",
        replicas=1,
        checkpoint=None,
    )
    rows = []
    for rate in candidates:
        result = train(dataclasses.replace(trial, learning_rate=rate))
        ends = result.curves.groupby("metric")["value"].last()
        accuracy, loss = (
            math.nan if result.diverged[0] else float(ends[metric]) for metric in ("test_accuracy", "test_loss")
        )
        logger.info("%s: learning rate %g: validation accuracy %.4f, loss %.4f", request.slug, rate, accuracy, loss)
        rows.append((rate, accuracy, loss, result.diverged[0]))
    table = pd.DataFrame(rows, columns=["learning_rate", "validation_accuracy", "validation_loss", "diverged"])
    return LearningRateSearch(table, _best(table, len(trial.dataset.test)))


def _best(table: pd.DataFrame, held_out: int) -> float:
    """Learning rate of the smallest loss among the trials that are as accurate as the best, but for chance."""
    best = table["validation_accuracy"].max()
    if math.isnan(best):
        return float(table["learning_rate"].min())
    margin = math.sqrt(best * (1.0 - best) / held_out)
    close = table[table["validation_accuracy"] >= best - margin]
    return float(close.loc[close["validation_loss"].idxmin(), "learning_rate"])


def _divide(request: TrainingRequest) -> ImageDataset:
    """Members divided at random; those held out are ``test``."""
    members = request.dataset.train
    order = numpy_generator(request.seed, request.slug, 0, "validation").permutation(len(members.labels))
    held_out = math.ceil(request.config.validation_fraction * len(order))
    test, train = (
        Split(members.images[rows], members.labels[rows])
        for rows in (np.sort(order[:held_out]), np.sort(order[held_out:]))
    )
    return dataclasses.replace(request.dataset, train=train, test=test)
