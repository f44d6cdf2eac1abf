"""Verdicts as the command reaches them: sign flips drawn from the seed 0."""

from functools import partial

from leakbound.claims import evaluation
from leakbound.randomness.seeding import numpy_generator

evaluate = partial(evaluation.evaluate, generator_of=partial(numpy_generator, 0))
