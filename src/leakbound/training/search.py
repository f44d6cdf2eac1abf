"""The learning rate of a run, by a search of equal budget for every defense and level."""

from __future__ import annotations

import dataclasses
import logging
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from leakbound.datasets import ImageDataset, Split
from leakbound.seeding import numpy_generator
from leakbound.training.request import TrainingRequest
from leakbound.training.trainers import train

logger = logging.getLogger("leakbound")


@dataclass(frozen=True)
class LearningRateSearch:
    """What a search tried and chose.

    Attributes:
        table: Columns ``learning_rate``, ``validation_accuracy`` (NaN if diverged) and ``diverged``, one row a trial.
        learning_rate: The best one.
    """

    table: pd.DataFrame
    learning_rate: float


def search_learning_rate(request: TrainingRequest) -> LearningRateSearch:
    """Train one replica per candidate and take the one that is most accurate on members held out.

    Every candidate trains ``search_rounds`` steps from the same weights on the same batches; ``validation_fraction`` of
    the members are held out, the same ones for every candidate. Accuracy is measured on their clean images, which the
    client owns. Of equally accurate candidates the smallest is taken; a diverged one is worse than any other. What the
    choice itself tells of the records is in no accountant's figure.

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
        accuracies = result.curves.loc[result.curves["metric"] == "test_accuracy", "value"]
        accuracy = math.nan if result.diverged[0] else float(accuracies.iloc[-1])
        logger.info("%s: learning rate %g: validation accuracy %.4f", request.slug, rate, accuracy)
        rows.append((rate, accuracy, result.diverged[0]))
    table = pd.DataFrame(rows, columns=["learning_rate", "validation_accuracy", "diverged"])
    best = table["validation_accuracy"].fillna(-1.0).idxmax()  # the first of equals, hence the smallest
    return LearningRateSearch(table, float(table.loc[best, "learning_rate"]))


def _divide(request: TrainingRequest) -> ImageDataset:
    """Members divided at random, the part held out as ``test``."""
    members = request.dataset.train
    order = numpy_generator(request.seed, request.slug, 0, "validation").permutation(len(members.labels))
    held_out = math.ceil(request.config.validation_fraction * len(order))
    return dataclasses.replace(
        request.dataset, train=_part(members, order[held_out:]), test=_part(members, order[:held_out])
    )


def _part(members: Split, rows: np.ndarray) -> Split:
    """Some members, in their order."""
    chosen = np.sort(rows)
    return Split(members.images[chosen], members.labels[chosen])
