"""Settings of training, the same for every defense."""

from typing import Annotated, Literal

from pydantic import Field

from leakbound.config.settings import Count, Rates, Seconds, Settings

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
    precision: Precision | Literal["auto"] = "auto"
    """Arithmetic of products in the passes of a training on a GPU. auto is tf32 there, and float32 on a CPU, which
    takes no other. Weights, noise, clipping, evaluations and attacks are in float32 everywhere."""
