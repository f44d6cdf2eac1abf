"""Training of target networks: one loop for all defenses, replicas and rates as a stack, checkpoints."""

from leakbound.training.request import Slot, TrainingRequest, TrainingResult
from leakbound.training.trainers import UntrainableError, train

__all__ = ["Slot", "TrainingRequest", "TrainingResult", "UntrainableError", "train"]
