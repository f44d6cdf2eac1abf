"""Training of target networks: one loop for all defenses, replicas and rates as a stack, checkpoints.

From top to bottom: ``trainers`` checks a request and calls the trainer of its defense, in ``sgd`` or
``per_sample``. ``loop`` takes one stack after another through all steps. A step draws records by ``batches``,
changes images and gradients by ``client_steps``, and differentiates the ``stack``.
"""

from leakbound_lab.training.request import Slot, TrainingRequest, TrainingResult
from leakbound_lab.training.trainers import UntrainableError, train

__all__ = ["Slot", "TrainingRequest", "TrainingResult", "UntrainableError", "train"]
