"""Verdicts as the command reaches them: sign flips drawn from the seed 0."""

from functools import partial

from leakbound.randomness.seeding import numpy_generator
from leakbound_lab.claims import evaluation
from leakbound_lab.config.catalogue import FigureConfig

evaluate = partial(evaluation.evaluate, generator_of=partial(numpy_generator, 0))


def entry(**stated: object) -> FigureConfig:
    """An entry of the catalogue, with any values of what is not stated."""
    any_values = {"id": "fig", "paper": "tan2024", "title": "A title", "study": "s", "plot": "levels"}
    return FigureConfig.model_validate({**any_values, "caption": "Text.", **stated})
