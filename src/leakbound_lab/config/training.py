"""Settings of training, the same for every defense."""

from typing import Annotated, Literal

from pydantic import Field

from leakbound_lab.config.settings import Count, Rates, Seconds, Settings

Length = Literal["half", "best", "full"]
"""Point of a training whose weights are kept: half of its steps, its best point on validation records, or its end."""
LENGTHS: tuple[Length, ...] = ("half", "best", "full")
Precision = Literal["float32", "tf32", "bfloat16"]
"""Arithmetic of products in forward and backward passes."""


class TrainingConfig(Settings):
    """Training of target models, the same for every defense."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    learning_rates: Rates = (0.001, 0.003, 0.01, 0.03)
    """Candidates, each trained at full length. Every defense and level has equally many, and the validation
    records of each replica choose among them."""
    evaluations: Count = 10
    """Points of the accuracy and loss curves, the last one at the end."""
    checkpoint_seconds: Seconds = 30.0
    """Least time between two checkpoints, in seconds."""
    max_stack: Count | Literal["auto"] = "auto"
    """Networks trained as one batch. auto takes as many as fit the cache of a CPU, or the memory of a GPU."""
    precision: Precision = "float32"
    """Arithmetic of the products in forward and backward passes; a CPU takes float32 alone. On a GPU tf32 and bfloat16
    halve the time of a step of large networks and lead to other weights: in tf32 those of ResNet10 were .16 of their
    way from float32's after 20 steps. Weights, noise, clipping, evaluations and attacks are in float32 everywhere."""
