"""Training of target models: one loop for every defense, replicas and candidate rates as a stack, checkpoints."""

from leakbound.training.request import Slot, TrainingRequest, TrainingResult
from leakbound.training.trainers import UntrainableError, train

__all__ = ["Slot", "TrainingRequest", "TrainingResult", "UntrainableError", "train"]
