"""Settings of the attackers."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from leakbound.config.settings import Count, Name, Rates, Records, Settings, Steps, Weights

TRAINED_ATTACKS = ("membership", "model_inversion")
"""Built-in attacks that need a trained network; the other one attacks gradients of an untrained one."""
TRAINED_MEASURES = ("gradient_capacity",)
"""What else is evaluated on a trained network, and goes by the name of an attack in a study."""


class MembershipConfig(Settings):
    """White-box membership inference with partial knowledge (Tan et al. 2024, Sec. 6.1)."""

    known_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Part of the members, and of the non-members, that the attacker knows and learns from; the rest is scored."""
    epochs: Steps = 60
    """Most passes of the attack network over what the attacker knows."""
    learning_rates: Rates = (1e-4, 1e-3)
    """Candidates of the attacker's own search, judged on a held-out part of what it knows."""
    batch_size: Annotated[Records, Field(ge=2)] = 64
    """Records in a step of the attack network."""


class ModelInversionConfig(Settings):
    """Model inversion from the mean auxiliary image (Tan et al. 2024, Sec. 6.1), and a tuned attacker."""

    iterations: Steps = 600
    """Adam steps."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.01
    """Adam's learning rate."""
    tv_weights: Weights = (0.0, 1e-3, 1e-2, 1e-1)
    """Total-variation weights that the tuned attacker tries."""
    checkpoints: Count = 6
    """Moments of the optimisation at which the tuned attacker may stop."""


class GradientInversionConfig(Settings):
    """Gradient inversion by cosine distance and total variation (Geiping et al. 2020)."""

    images: Count = 30
    """Records whose gradients are inverted, for each replica; metrics are means over them."""
    tuning_images: Count = 4
    """Auxiliary records on which the total-variation weight is chosen for each level."""
    iterations: Steps = 1200
    """Signed Adam steps."""
    learning_rate: Annotated[float, Field(gt=0, le=10)] = 0.1
    """Adam's learning rate, multiplied by 0.1 after 3/8, 5/8 and 7/8 of the steps."""
    tv_weights: Weights = (1e-3, 1e-2, 1e-1)
    """Total-variation weights that the attacker tries at each level."""
    untuned_tv_weight: Annotated[float, Field(ge=0, le=1e12)] = 1e-2
    """Weight of the attacker that is not tuned, shown beside the tuned one."""


class GradientCapacityConfig(Settings):
    """What one step of DP training tells, by the gradients of a trained network; no attack, but evaluated like one."""

    records: Annotated[int, Field(ge=2, le=5000)] = 1000
    """Members whose gradients are taken; all are held in memory at once, 4 bytes for each parameter of the network."""


class AttackConfig(Settings):
    """Settings of the attackers."""

    membership: MembershipConfig = MembershipConfig()
    model_inversion: ModelInversionConfig = ModelInversionConfig()
    gradient_inversion: GradientInversionConfig = GradientInversionConfig()
    gradient_capacity: GradientCapacityConfig = GradientCapacityConfig()
    custom: dict[Name, dict[str, Any]] = {}
    """Attack from outside the package to its options."""
