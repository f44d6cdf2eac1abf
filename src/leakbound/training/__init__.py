"""Training of target models: one loop for every defense, replicas as a stack, checkpoints, learning-rate search."""

from leakbound.training.request import TrainingRequest, TrainingResult
from leakbound.training.search import LearningRateSearch, search_learning_rate
from leakbound.training.trainers import UntrainableError, train

__all__ = [
    "LearningRateSearch",
    "TrainingRequest",
    "TrainingResult",
    "UntrainableError",
    "search_learning_rate",
    "train",
]
