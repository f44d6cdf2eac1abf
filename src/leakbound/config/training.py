"""Settings of training, the same for every defense."""

from typing import Annotated, Literal

from pydantic import Field

from leakbound.config.settings import Count, Rates, Seconds, Settings, Steps


class TrainingConfig(Settings):
    """Training of target models, the same for every defense."""

    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Momentum of SGD."""
    learning_rates: Rates = (0.003, 0.01, 0.03)
    """Candidates of the learning-rate search; every defense and level tries equally many."""
    search_rounds: Steps = 300
    """Steps of each trial of the learning-rate search."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Fraction of the members that the search holds out to judge a trial."""
    evaluations: Count = 10
    """Points of the accuracy and loss curves, the last one at the end."""
    checkpoint_seconds: Seconds = 30.0
    """Least time between two checkpoints, in seconds."""
    max_stack: Count | Literal["auto"] = "auto"
    """Models trained as one batch: auto takes 1 on a CPU and all that fit the memory of a GPU."""
